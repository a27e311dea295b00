"""Where each record of a data set in shards lies: a table in a cache, which is not read as a whole.

An index is built once, by a look at all shards. It lies in `vit_keras/shards` in `$KERAS_HOME` or
`~/.keras`, under a name that follows from the names, sizes and times of the shards.
"""

import hashlib
import json
import pathlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, TypedDict

import numpy as np

from vit_keras import extras
from vit_keras.data.shards.formats import FORMATS, MOST_CLASSES
from vit_keras.data.shards.shard_files import Shard, ShardFiles, cache_folder
from vit_keras.file_lock import exclusive_lock
from vit_keras.files import replacing_folder, sha256
from vit_keras.json_files import read_json, with_checksums

VERSION = 3  # of the table and of what is read out of shards
META, TABLE = "index.json", "records.bin"
PLACE = np.dtype([("offset", "<i8"), ("length", "<i8"), ("label", "<i4")])
NO_LABEL = -1
REMEDY = "Delete its folder; it is then built anew"


class Meta(TypedDict):
    """What `index.json` must hold."""

    records: list[int]  # of each shard
    classes: list[str]  # names, by the numbers in the table; empty if the labels are numbers
    sha256: str  # of the table


class Index(NamedTuple):
    """The places and labels of N records in S shards.

    Attributes:
        starts: The number of the first record of each shard, and N, `(S + 1,)`.
        table: The places, `(N,)`: `offset` and `length` as in `Record`.
        labels: The number of each class, `(N,)`; -1 without one.
        classes: The names of the classes, sorted, if the labels in the shards are names.
    """

    starts: np.ndarray
    table: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]

    def place(self, number: int) -> tuple[int, int, int]:
        """Returns the shard, the offset and the length of a record."""
        offset, length, _ = self.table[number].item()
        return int(np.searchsorted(self.starts, number, side="right")) - 1, offset, length


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
                classes: dict[str, int] = {}
                write_index(folder, _scanned(files, kind, column, classes), classes)
    return read_index(folder)


def index_folder(shards: Sequence[Shard], kind: str, column: str | None) -> pathlib.Path:
    """Returns the folder of the index of some shards, which need not exist."""
    said = json.dumps([VERSION, kind, column, *map(list, shards)])
    return cache_folder() / hashlib.sha256(said.encode()).hexdigest()[:32]


def _scanned(files, kind, column, classes) -> Iterator[np.ndarray]:
    """Yields the places in each shard; `classes` numbers the names of labels as they occur."""
    tqdm = extras.require("tqdm", extra="data", purpose="The progress bar").tqdm
    kinds: set[type] = set()  # of labels
    bar = tqdm(files.shards, desc="indexing shards", unit="", disable=None, leave=False)
    for number, shard in enumerate(bar):
        with files.scanning(number) as path, shard.naming(path):
            records = enumerate(FORMATS[kind].scan(path, column))
            places = ((*place, _number(i, label, classes, kinds)) for i, (*place, label) in records)
            table = np.fromiter(places, PLACE)
            if shard.images not in (None, len(table)):
                raise ValueError(
                    f"it has {len(table)} pictures, and shards.json says {shard.images}"
                )
        yield table


def _number(where, label, classes, kinds):
    if label is None:
        return NO_LABEL
    kinds.add(type(label))
    if kinds not in ({int}, {str}):
        raise ValueError(
            "the labels must all be numbers, or all be names, and that of its record "
            f"{where} is {label!r:.60}"
        )
    if isinstance(label, str):
        label = classes.setdefault(label, len(classes))
    if not 0 <= label < MOST_CLASSES:
        raise ValueError(
            f"its record {where} has the class {label}, not one of 0 to {MOST_CLASSES - 1}"
        )
    return label


def write_index(
    folder: pathlib.Path, tables: Iterable[np.ndarray], classes: Collection[str]
) -> None:
    """Writes an index in one step: the places in each shard, and the names of their classes."""
    with replacing_folder(folder) as partial:
        with open(partial / TABLE, "wb") as file:
            counts = [file.write(table.tobytes()) // PLACE.itemsize for table in tables]
        meta = {"records": counts, "classes": list(classes), "sha256": sha256(partial / TABLE)}
        (partial / META).write_text(json.dumps(with_checksums(meta)), encoding="utf-8")


def read_index(folder: pathlib.Path) -> Index:
    """Maps an index into memory.

    Raises:
        ValueError: If it is damaged. The message names the file.
    """
    meta = read_json(folder / META, Meta, REMEDY)
    if sha256(folder / TABLE) != meta["sha256"]:
        raise ValueError(f"{str(folder / TABLE)!r} is damaged (its SHA-256 differs). {REMEDY}")
    starts = np.cumsum([0, *meta["records"]])
    table = np.memmap(folder / TABLE, PLACE, "r") if starts[-1] else np.empty(0, PLACE)
    labels, classes = np.array(table["label"]), sorted(meta["classes"])
    if classes:
        ranks = {name: rank for rank, name in enumerate(classes)}
        # The last rank stands for no label.
        labels = np.array([*map(ranks.get, meta["classes"]), NO_LABEL], "int32")[labels]
    return Index(starts, table, labels, tuple(classes))
