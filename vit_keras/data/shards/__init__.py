"""Shards: the files that a pattern names, an index of their records, the data set, and packing.

An index is built once, by reading all shards. It is kept in `vit_keras/shards` in `$KERAS_HOME` or
`~/.keras`, under a name derived from the names, sizes and times of the shards.
"""

import contextlib
import glob
import hashlib
import io
import itertools
import json
import math
import operator
import os
import pathlib
import re
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data import picture_files
from vit_keras.data.cropping import sides_of
from vit_keras.data.dataset import SPLITS, Dataset, Source, Split, split_in, split_name
from vit_keras.data.depth import as_picture, pillow
from vit_keras.data.labels import NO_CLASS, Labels
from vit_keras.data.picture_paths import is_junk
from vit_keras.data.shards.formats import FORMATS, MOST_CLASSES, Scan, ShardFormat, format_of
from vit_keras.data.shards.shard_files import Shard, ShardFiles, ask, is_remote, size_and_stamp
from vit_keras.support import extras
from vit_keras.support.checks import LARGEST_JSON_BYTES, check_choice, parse_json, with_checksums
from vit_keras.support.files import check_new, exclusive_lock, replacing, replacing_folder, sha256
from vit_keras.support.machine import read_ahead

MOST_SHARDS = 10**6
AT_ONCE = 16  # concurrent requests
FILE = "shards.json"
# Formats whose records have no byte offsets.
COMPRESSED = re.compile(r"\.(t[gbx]z2?|(tar|parquet|tfrecords?)\.(gz|bz2|xz|zst|lz4))$")
REMEDY = "Restore it; without it, the shards are read by their names, and classes have numbers"


class Entry(TypedDict):
    """The entry of a shard in `shards.json`."""

    file: str
    images: int
    bytes: int
    sha256: str


class Manifest(TypedDict):
    """The content of `shards.json`, which `pack_shards` writes beside the shards."""

    format: str
    image_size: int | None
    classes: list[str]
    splits: dict[str, list[Entry]]


class Shards(NamedTuple):
    """The shards that a pattern names.

    Attributes:
        splits: The shards of each split, in order.
        form: The row of their format.
        classes: The class names in `shards.json`; empty without it.
    """

    splits: dict[str, list[Shard]]
    form: ShardFormat
    classes: tuple[str, ...]


def find_shards(pattern: str) -> Shards:
    """Lists the shards that a pattern names.

    A folder without shards stands for its only subfolder with shards, such as `data` in a Hub
    repository, or for the subfolders of the splits.

    A shard belongs to the split train, test, validation, val, valid, or dev if its name contains
    that word or its folder has that name, and to train otherwise. `shards.json` takes precedence.

    Args:
        pattern: A folder, a file, a URL, or names with `*`, `?`, `[ab]`, `{a,b}` or
            `{000..127}`; in URLs, `?` and `[` stand for themselves.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the files have no known format or more than one, or if `shards.json` is
            damaged or lists other files.
    """
    is_folder = os.path.isdir(pattern)
    if is_remote(pattern):
        pattern = pattern.rstrip("/")
        last = pattern.rpartition("/")[2]
        is_folder = format_of(last) is None and not set("*{") & set(last)
    else:
        pattern = pathlib.Path(pattern).absolute().as_posix()
    paths = [] if is_folder else _named(pattern)
    folder = pattern if is_folder else paths[0].rpartition("/")[0]
    manifest = _manifest(f"{folder}/{FILE}")
    entries: dict[str, Any] = {
        f"{folder}/{entry['file']}": (split, entry)
        for split, of_split in manifest["splits"].items()
        for entry in of_split
    }
    paths = paths or list(entries) or _in_folder(folder)

    def look(path) -> tuple[str, Shard]:
        *_, above, name = path.split("/")
        of_folder = split_name(above) if split_name(above) in SPLITS else "train"
        split, entry = entries.get(path, (split_in(name, of_folder), {}))
        is_known = entry and is_remote(path)  # saves a request to the server
        size, stamp = (entry["bytes"], "") if is_known else size_and_stamp(path)
        return split, Shard(path, size, stamp, entry.get("images"), entry.get("sha256"))

    form, splits = _form(pattern, paths), dict[str, list[Shard]]()
    for split, shard in read_ahead(look, paths, AT_ONCE):
        if shard.size <= 0:
            raise shard.damaged("it is empty")
        splits.setdefault(split, []).append(shard)
    return Shards(splits, form, tuple(manifest["classes"]))


def _named(pattern) -> list[str]:
    """Returns the files that a pattern names, in order."""
    if os.path.exists(pattern):  # even if its name looks like a pattern
        return [pattern]
    paths: list[str] = []
    for path in expand_braces(pattern):
        is_local = not is_remote(path) and not os.path.exists(path)
        has_magic = "*" in path or (is_local and glob.has_magic(path))
        matching = _listed(path, lambda files, name: files.glob(name)) if has_magic else []
        paths += matching or [path]
    return list(dict.fromkeys(paths))


def _in_folder(folder) -> list[str]:
    """Returns the shards in a folder or, without any, in its splits' folders or only subfolder."""
    listed = lambda path: _listed(path, lambda files, name: files.ls(name, detail=False))
    shards = lambda paths: [path for path in paths if format_of(path) or COMPRESSED.search(path)]
    paths = listed(folder)
    if any(shards(paths)) or folder.startswith("http"):
        return shards(paths)
    inside = [path for path in paths if ask(path, lambda files, name: files.isdir(name))]
    below = {path: of_path for path in inside if (of_path := shards(listed(path)))}
    names = [*map(os.path.basename, below)]
    if len(names) > 1 and not {*names} <= {*SPLITS}:
        raise ValueError(
            f"A folder must contain shards of one data set. Received: {folder!r} with shards in "
            f"{', '.join(names)}. Give one of them, such as shards:{next(iter(below))}"
        )
    return [*itertools.chain(*below.values())] or [path for path in paths if path not in inside]


def _listed(path, names: Callable[[Any, str], list[str]]) -> list[str]:
    """Returns the files that a file system lists, sorted, without hidden ones."""
    whole = lambda files, name: files.unstrip_protocol(name) if is_remote(path) else name
    paths = ask(path, lambda files, name: [whole(files, one) for one in names(files, name)])
    return sorted(path for path in paths if not is_junk(os.path.basename(path)))


def expand_braces(pattern: str) -> list[str]:
    """Returns the names that `{a,b}` and `{000..127}` stand for.

    Raises:
        ValueError: If there are more than a million names, or none.
    """
    choices: list[list[str]] = []
    for i, text in enumerate(re.split(r"\{([^{}]*)\}", pattern)):
        if i % 2 and (bounds := re.fullmatch(r"(\d+)\.\.(\d+)", text)):
            first, last = map(int, bounds.groups())
            numbers = range(first, min(last, first + MOST_SHARDS) + 1)  # one too many is refused
            choices.append([f"{number:0{len(bounds[1])}}" for number in numbers])
        else:
            choices.append(text.split(",") if i % 2 else [text])
    if not 0 < math.prod(map(len, choices)) <= MOST_SHARDS:
        raise ValueError(
            f"A range in a pattern must ascend, and a pattern must name at most {MOST_SHARDS} "
            f"shards. Received: {pattern!r}"
        )
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _manifest(path) -> Manifest:
    """Reads `shards.json`; returns an empty manifest if there is none."""
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe may never end
        raise ValueError(f"{path!r} is not a file. {REMEDY}")
    end = LARGEST_JSON_BYTES + 1  # one byte more than is allowed, so that a larger file is refused
    try:
        data = ask(path, lambda files, name: files.cat_file(name, start=0, end=end))
    except FileNotFoundError:
        return Manifest(format="", image_size=None, classes=[], splits={})
    manifest = parse_json(data, repr(path), Manifest, REMEDY)
    for entry in itertools.chain(*manifest["splits"].values()):
        name = entry["file"]
        if name in ("", ".", "..") or set("/\\") & set(name):
            raise ValueError(f"{path!r} must name files beside it. Received: {name!r}. {REMEDY}")
    return manifest


def _form(pattern, paths) -> ShardFormat:
    kinds = {format_of(path): os.path.basename(path) for path in paths}
    if len(kinds) != 1 or None in kinds:
        raise ValueError(
            "Shards must be files of one format, with the suffix .tar, .parquet or .tfrecord. "
            f"Received: {pattern!r} with {', '.join(kinds.values()) or 'no files'}. "
            "Unpack compressed files; name files of one format, such as shards:FOLDER/*.tar"
        )
    return FORMATS[str(*kinds)]


VERSION = 6  # of the index file, and of how shards are read
PLACE = np.dtype([("offset", "<i8"), ("length", "<i8"), ("label", "<i4")])


# Of N records in S shards: the number of the first record of each shard, followed by N, `(S + 1,)`;
# the places, `(N,)`, with `offset` and `length` as in `formats.Record`, and the number of each
# record's class as `label`, -1 without one; and the sorted class names, if labels are names.
Index = tuple[np.ndarray, np.ndarray, tuple[str, ...]]


def open_index(files: ShardFiles, column: str | None, scan: Scan) -> Index:
    """Opens the index of some shards; builds it first if there is none.

    Args:
        files: The shards, in the order of their records.
        column: The column or feature of the labels; None for the usual one.
        scan: Takes a file and the column, and yields its records.

    Raises:
        ValueError: If a shard or the index is damaged. The message names the file.
    """
    path = index_path(files, column)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(f"{path}.lock"):
            if not path.exists():  # another process may have built it meanwhile
                write_index(path, *_scanned(files, scan, column))
    try:
        with np.load(path) as arrays:  # compares checksums
            starts, table, names = (arrays[name] for name in ("starts", "table", "classes"))
    except (ValueError, OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{str(path)!r} is damaged ({error}). Delete it to rebuild it") from error
    return starts, table, tuple(json.loads(names.item()))


def index_path(files: ShardFiles, column: str | None) -> pathlib.Path:
    """Returns the path of the index of some shards, whether or not the index exists."""
    described = json.dumps([VERSION, column, *map(list, files.shards)])
    return files.folder / f"{hashlib.sha256(described.encode()).hexdigest()[:32]}.npz"


def _scanned(files, scan, column) -> tuple[list[np.ndarray], dict[str, int]]:
    """Returns the places in each shard, and the number that each class name has in them."""
    tables, classes, kinds = list[np.ndarray](), dict[str, int](), set[type]()  # kinds of labels

    def place(where, offset, length, label) -> tuple[int, int, int]:
        if label is None:
            return offset, length, NO_CLASS
        kinds.add(type(label))
        number = classes.setdefault(label, len(classes)) if isinstance(label, str) else label
        if kinds not in ({int}, {str}) or not 0 <= number < MOST_CLASSES:
            raise ValueError(
                "the labels must be either all names or all numbers, for at most "
                f"{MOST_CLASSES} classes, but the label of its record {where} is {label!r:.60}"
            )
        return offset, length, number

    bar = {"desc": "indexing shards", "unit": "", "disable": None, "leave": False}
    for number, shard in enumerate(extras.require("tqdm").tqdm(files.shards, **bar)):
        with files.scanning(number) as path:
            records = enumerate(scan(path, column))
            tables.append(np.fromiter((place(i, *record) for i, record in records), PLACE))
            if shard.images not in (None, len(tables[-1])):
                raise ValueError(f"it has {len(tables[-1])} pictures instead of {shard.images}")
    return tables, classes


def write_index(path: pathlib.Path, tables: Sequence[np.ndarray], classes: Collection[str]) -> None:
    """Writes an index: the places in each shard, and the class names by their numbers, if any."""
    table, names = np.concatenate(tables), sorted(classes)
    if names:
        ranks = {name: rank for rank, name in enumerate(names)}
        # The last rank means no label.
        table["label"] = np.array([*map(ranks.get, classes), NO_CLASS], "int32")[table["label"]]
    starts = np.cumsum([0, *map(len, tables)])
    with replacing(path) as temporary:
        np.savez(temporary, starts=starts, table=table, classes=json.dumps(names).encode())


def load(pattern: str, config: DataConfig, *_: Any) -> Source:
    """Opens shards: see `find_shards` for the pattern.

    Records keep the order of the shards, and within each the order of the file. Without a held-out
    split, `config.test_percent` of each class is held out; the records' numbers decide which.

    Args:
        pattern: The shards.
        config: The column of the labels and the held-out share.

    Raises:
        FileNotFoundError: If a shard does not exist.
        ValueError: If a shard or its index is damaged, or if a picture has no class. The message
            names the file.
        ImportError: If a package for the format is not installed.
    """
    column, *others = tuple(config.label_columns) or (None,)
    if others:
        raise ValueError(f"Shards have one column of labels. Received: {[column, *others]}")
    return shard_source(f"shards:{pattern}", find_shards(pattern), column, config)


def shard_source(name: str, shards: Shards, column: str | None, config: DataConfig) -> Source:
    """Makes the source of the pictures in shards.

    Args:
        name: The name of the data set, as `data.load` takes it.
        shards: The shards.
        column: The column or feature of the labels; None for the usual one.
        config: Its `shard_cache_gb` limits the copies on disk.

    Raises:
        ValueError: If a shard or the index is damaged, or if there is no picture.
    """
    flat = [shard for of_split in shards.splits.values() for shard in of_split]
    files = ShardFiles(flat, config.shard_cache_gb)
    starts, table, named = open_index(files, column, shards.form.scan)
    labels = np.array(table["label"])
    if not len(labels):
        raise ValueError(f"Shards must contain pictures. Received: {name!r} with none")
    files.copy_all()
    names, highest = named or shards.classes, int(labels.max())
    names = names or shards.form.class_names(files, column) or tuple(map(str, range(highest + 1)))
    of = lambda numbers: np.searchsorted(starts, numbers, side="right") - 1  # their shards
    if highest >= len(names):
        reason = f"it has the class {highest}, but there are names for {len(names)} classes"
        raise flat[of(np.argmax(labels))].damaged(reason)
    read = shards.form.reader(files)
    ends = np.cumsum([len(of_split) for of_split in shards.splits.values()])
    edges = starts[[0, *ends]].tolist()
    return Source(
        name,
        Labels("classes", names, labels),
        lambda number: read(int(of(number)), *table[number].item()[:2]),
        {key: np.arange(*edge) for key, edge in zip(shards.splits, itertools.pairwise(edges))},
        name_of=lambda i: f"{flat[of(i)].path} record {i - int(starts[of(i)])}",
        files=lambda numbers: [_name_and_path(flat[k]) for k in np.unique(of(numbers))],
    )


def _name_and_path(shard: Shard) -> tuple[str, str]:
    """Returns a shard's name, which for a remote shard changes with the content, and its path."""
    stamp = f" {shard.stamp}{shard.sha256 or ''}" if is_remote(shard.path) else ""
    return os.path.basename(shard.path) + stamp, shard.path


MEGABYTE = 10**6
AHEAD = 64  # pictures to read in advance
QUALITY = 95  # of written JPEGs

# A picture for a shard, as `formats.Write` takes it: the name, the bytes, and the class if any.
Packed = tuple[str, bytes, int | None]


def pack_shards(
    dataset: Dataset,
    folder: str | os.PathLike,
    *,
    format: str = "tar",
    image_size: int | None = None,
    shard_mb: int = 256,
    progress: Callable[[int], object] = lambda count: None,
) -> Manifest:
    """Writes all splits of a data set as shards, in order, with `shards.json` beside them.

    Files are copied byte for byte, so a run on the shards sees the same batches as a run on the
    data set. Pictures in memory become PNG.

    Args:
        dataset: A data set of classes, or without labels.
        folder: A new folder, which appears once it is complete.
        format: "tar", "parquet", or "tfrecord".
        image_size: The shorter side in pixels to which larger pictures are reduced; they become
            JPEG of quality 95. None copies all pictures.
        shard_mb: The size in 10^6 bytes at which a shard ends.
        progress: Called with 1 after each picture.

    Returns:
        The content of `shards.json`: the classes, and by split each shard's name, number of
        pictures, bytes and SHA-256.

    Raises:
        ValueError: If the format is unknown, if the labels are not classes, if the folder is not
            empty, or if a picture to reduce cannot be read.
        ImportError: If a package for the format is not installed.

    Example:
        >>> digits = data.load("digits", channels=1)
        >>> manifest = data.pack_shards(digits, "digits_in_shards", format="parquet")
        >>> manifest["splits"]["test"][0]["images"]
        360
    """
    check_choice(format, FORMATS, "format")
    if dataset.class_names and dataset.kind != "classes":
        raise ValueError(
            f"Shards hold pictures with classes. Received: {dataset.name!r}, whose labels are "
            f"{dataset.kind}. Train on the data set itself"
        )
    check_new(folder)
    classes = list(dataset.class_names)
    manifest = Manifest(format=format, image_size=image_size, classes=classes, splits={})
    with replacing_folder(folder) as partial:
        for name, split in dataset.splits.items():
            entries = manifest["splits"].setdefault(name, [])
            pictures = _in_shards(_pictures(split, bool(classes), image_size), shard_mb * MEGABYTE)
            for shard, in_shard in itertools.groupby(pictures, key=operator.itemgetter(0)):
                path = partial / f"{name}-{shard:05}.{format}"
                count = 0
                with FORMATS[format].writer(str(path), classes) as write:
                    for _, picture in in_shard:
                        write(*picture)
                        count += 1
                        progress(1)
                size, digest = path.stat().st_size, sha256(path)
                entries.append(Entry(file=path.name, images=count, bytes=size, sha256=digest))
        text = json.dumps(with_checksums({**manifest}), indent=1, ensure_ascii=False)
        (partial / FILE).write_text(text, encoding="utf-8")
    return manifest


def _in_shards(pictures: Iterable[Packed], most_bytes) -> Iterator[tuple[int, Packed]]:
    """Yields the number of each picture's shard, and the picture."""
    shard, size = 0, 0
    for picture in pictures:
        length = len(picture[1])
        if size and size + length > most_bytes:
            shard, size = shard + 1, 0
        size += length
        yield shard, picture


def _pictures(split: Split, has_classes: bool, image_size) -> Iterator[Packed]:
    def read(i):
        picture, name = split.encoded(i), split.name(i)
        if isinstance(picture, np.ndarray):
            picture = _encoded(as_picture(picture), format="png")
        suffix = os.path.splitext(name)[1].lower()
        if image_size is not None:
            picture, suffix = _reduced(name, picture, suffix, image_size)
        if suffix not in picture_files.SUFFIXES:
            suffix = _suffix_of(picture)
        return f"{i:08}{suffix}", picture, int(split.labels[i]) if has_classes else None

    return read_ahead(read, range(len(split)), AHEAD)


def _suffix_of(picture):
    """Returns the suffix of a picture's format; that of JPEG if it is unreadable."""
    with contextlib.suppress(ValueError), picture_files.open_encoded(picture) as opened:
        return f".{opened.format.lower()}"
    return ".npy" if picture.startswith(picture_files.NPY) else ".jpg"


def _reduced(name, picture, suffix, side):
    """Returns a picture whose shorter side has at most `side` pixels, and its suffix."""
    try:
        image = picture_files.decode(picture, None)
    except ValueError as error:
        raise ValueError(picture_files.unreadable_message(repr(name), str(error))) from error
    height, width = sides_of(image)
    scale = side / min(height, width)
    if scale >= 1:
        return picture, suffix
    size = tuple(max(side, round(length * scale)) for length in (width, height))
    if isinstance(image, np.ndarray):
        raise ValueError(
            "Only 8-bit gray and RGB pictures can be reduced. Received: "
            f"{name!r} of {image.dtype} with {image.shape[-1]} channels. Leave out --image_size"
        )
    image = image.convert("RGB").resize(size, pillow().Resampling.BICUBIC)
    return _encoded(image, format="jpeg", quality=QUALITY, subsampling=0), ".jpg"


def _encoded(picture, **options) -> bytes:
    """Encodes a picture; an array, whose bits or channels Pillow lacks, becomes `.npy`."""
    file = io.BytesIO()
    if isinstance(picture, np.ndarray):
        np.save(file, picture, allow_pickle=False)
    else:
        picture.save(file, **options)
    return file.getvalue()
