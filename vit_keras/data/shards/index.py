"""Where each record of a data set in shards lies: arrays in a cache, which are not read as a whole.

An index is built once, by a look at all shards. It lies in `vit_keras/shards` in `$KERAS_HOME` or
`~/.keras`, under a name that follows from the names, sizes and times of the shards.
"""

import array
import hashlib
import json
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple, TypedDict

import numpy as np

from vit_keras import extras
from vit_keras.data.shards.formats import FORMATS
from vit_keras.data.shards.manifest import check_count
from vit_keras.data.shards.records import MOST_CLASSES, damaged
from vit_keras.data.shards.shard_files import Shard, ShardFiles, cache_folder
from vit_keras.file_lock import exclusive_lock
from vit_keras.files import replacing_folder
from vit_keras.json_files import read_json

VERSION = 1  # of the arrays and of what is read out of shards
META = "index.json"
ARRAYS = {"starts": "int64", "offsets": "int64", "lengths": "int64", "labels": "int32"}
TYPE_CODES = {"int64": "q", "int32": "i"}  # of Python's arrays
NO_LABEL = -1
REMEDY = "Delete its folder; it is then built anew"


class Meta(TypedDict):
    """What `index.json` must hold."""

    shards: int
    records: int
    classes: list[str] | None


class Index(NamedTuple):
    """The places and labels of N records in S shards.

    Attributes:
        starts: The number of the first record of each shard, and N, `(S + 1,)`.
        offsets: As `Record.offset`, `(N,)`.
        lengths: As `Record.length`, `(N,)`.
        labels: The number of each class, `(N,)`; -1 without one.
        classes: The names of the classes, if the labels in the shards are names.
    """

    starts: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...] | None

    def place(self, number: int) -> tuple[int, int, int]:
        """Returns the shard, the offset and the length of a record."""
        shard = int(np.searchsorted(self.starts, number, side="right")) - 1
        return shard, int(self.offsets[number]), int(self.lengths[number])


def open_index(files: ShardFiles, kind: str, column: str | None) -> Index:
    """Opens the index of some shards, and builds it first if there is none.

    Args:
        files: The shards, in the order of their records.
        kind: Their format.
        column: The column or feature of the labels; None for the usual one.

    Raises:
        ValueError: If a shard or the index is damaged. The message names the file.
    """
    folder = index_folder(files.shards, kind, column)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(f"{folder}.lock", lambda: None):
            if not folder.exists():  # another process may have built it meanwhile
                write_index(folder, _scanned(files, kind, column))
    return read_index(folder, files.shards)


def index_folder(shards: Sequence[Shard], kind: str, column: str | None) -> pathlib.Path:
    """Returns the folder of the index of some shards, which need not exist."""
    said = json.dumps([VERSION, kind, column, *map(list, shards)])
    return cache_folder() / hashlib.sha256(said.encode()).hexdigest()[:32]


def _scanned(files, kind, column):
    tqdm = extras.require("tqdm", extra="data", purpose="The progress bar").tqdm
    columns = {name: array.array(TYPE_CODES[dtype]) for name, dtype in ARRAYS.items()}
    numbers: dict[str, int] = {}
    bar = tqdm(files.shards, desc="indexing shards", unit="", disable=None, leave=False)
    for number, shard in enumerate(bar):
        first = len(columns["offsets"])
        columns["starts"].append(first)
        with files.scanning(number) as path:
            for record in FORMATS[kind].scan(path, column):
                columns["offsets"].append(record.offset)
                columns["lengths"].append(record.length)
                columns["labels"].append(_number(shard.path, record.label, numbers))
        check_count(shard.path, shard.images, len(columns["offsets"]) - first)
    columns["starts"].append(len(columns["offsets"]))
    arrays = {name: np.array(values, ARRAYS[name]) for name, values in columns.items()}
    if not numbers:
        return Index(**arrays, classes=None)
    ranks = np.array([*np.argsort(np.argsort(list(numbers))), NO_LABEL], "int32")
    arrays["labels"] = ranks[arrays["labels"]]  # the last rank stands for no label
    return Index(**arrays, classes=tuple(sorted(numbers)))


def _number(path, label, numbers):
    """The number of a label; `numbers` has those of names, in the order in which they occur."""
    if label is None:
        return NO_LABEL
    if isinstance(label, str):
        number = numbers.setdefault(label, len(numbers))
        if number < MOST_CLASSES:
            return number
        raise damaged(path, f"its labels have more than {MOST_CLASSES} names")
    if numbers:
        raise damaged(path, "some labels are names and others numbers")
    return label


def write_index(folder: pathlib.Path, index: Index) -> None:
    """Writes an index as NumPy's files, in one step."""
    classes = None if index.classes is None else list(index.classes)
    meta = Meta(shards=len(index.starts) - 1, records=len(index.labels), classes=classes)
    with replacing_folder(folder) as partial:
        for name in ARRAYS:
            np.save(partial / f"{name}.npy", getattr(index, name))
        (partial / META).write_text(json.dumps(meta), encoding="utf-8")


def read_index(folder: pathlib.Path, shards: Sequence[Shard]) -> Index:
    """Maps an index into memory, and checks it.

    Raises:
        ValueError: If a file is damaged, or says places that are in no shard. The message names it.
    """
    meta = read_json(folder / META, Meta, REMEDY)
    if meta["shards"] != len(shards):
        raise _wrong(folder / META, f"it says {meta['shards']} shards of {len(shards)}")
    sizes = {"starts": meta["shards"] + 1}
    arrays = {name: _mapped(folder, name, sizes.get(name, meta["records"])) for name in ARRAYS}
    classes = meta["classes"]
    index = Index(**arrays, classes=None if classes is None else tuple(classes))
    _check_places(folder, index, shards)
    return index


def _mapped(folder, name, size):
    path = folder / f"{name}.npy"
    try:
        values = np.load(path, mmap_mode="r" if size else None, allow_pickle=False)
    except FileNotFoundError:
        raise
    except Exception as error:  # NumPy raises many kinds for a damaged header
        raise _wrong(path, str(error)) from error
    if values.shape != (size,) or values.dtype != ARRAYS[name]:
        raise _wrong(path, f"it holds {values.dtype} {values.shape} instead of {ARRAYS[name]}")
    return values


def _check_places(folder, index, shards):
    starts = np.asarray(index.starts)
    if starts[0] or starts[-1] != len(index.labels) or (np.diff(starts) < 0).any():
        raise _wrong(folder / "starts.npy", "it does not part the records")
    for number, shard in enumerate(shards):
        of_shard = slice(starts[number], starts[number + 1])
        offsets, lengths = index.offsets[of_shard], index.lengths[of_shard]
        if len(offsets) and (
            offsets.min() < 0 or lengths.min() < 0 or (offsets > shard.size - lengths).any()
        ):
            raise _wrong(folder / "offsets.npy", f"a record lies outside {shard.path!r}")
    if len(index.labels) and index.labels.min() < NO_LABEL:
        raise _wrong(folder / "labels.npy", "a label is negative")


def _wrong(path, reason):
    return ValueError(f"{os.fspath(path)!r} is damaged ({reason}). {REMEDY}")
