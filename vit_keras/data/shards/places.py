"""Which shards a pattern names, and to which splits they belong."""

import glob
import itertools
import math
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

from vit_keras.data.dataset import HELD_OUT
from vit_keras.data.picture_paths import is_junk
from vit_keras.data.read_ahead import read_ahead
from vit_keras.data.shards.formats import format_of
from vit_keras.data.shards.shard_files import Shard, ask, is_remote, size_and_stamp
from vit_keras.json_files import LARGEST_JSON_BYTES, parse_json

SPLITS = ("train", *HELD_OUT)
MOST_SHARDS = 10**6
AT_ONCE = 16  # answers that are awaited together
FILE = "shards.json"
# Whose records have no places of their own.
COMPRESSED = re.compile(r"\.(t[gbx]z2?|(tar|parquet|tfrecords?)\.(gz|bz2|xz|zst|lz4))$")
REMEDY_OF_KINDS = "Name files of one, such as shards:FOLDER/*.tar, or folder:FOLDER for pictures"
REMEDY = "Restore it; without it, the shards are read by their names, and classes have numbers"


class Entry(TypedDict):
    """A shard."""

    file: str
    images: int
    bytes: int
    sha256: str


class Manifest(TypedDict):
    """What `shards.json` must hold, which `pack_shards` writes beside the shards."""

    format: str
    image_size: int | None
    classes: list[str]
    splits: dict[str, list[Entry]]


class Shards(NamedTuple):
    """What a pattern names.

    Attributes:
        splits: The shards of each split, in their order.
        kind: Their format.
        classes: The names of the classes that `shards.json` says; empty without.
    """

    splits: dict[str, list[Shard]]
    kind: str
    classes: tuple[str, ...]


def find_shards(pattern: str) -> Shards:
    """Lists shards.

    A folder without shards stands for the one folder in it that has some, such as `data` of a hub's
    repository, or for those of the splits.

    A shard whose name has one of the words train, test, validation, val, valid, or dev, or whose
    folder has this name, belongs to that split, and others to train, unless `shards.json` says.

    Args:
        pattern: A folder, a file, a URL of one, or names with `*`, `?`, `[ab]`, `{a,b}` or
            `{000..127}`; in URLs, `?` and `[` stand for themselves.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the files have no known format, or several, or if `shards.json` is
            damaged or says other files.
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
    entries = {
        f"{folder}/{entry['file']}": (split, entry)
        for split, of_split in manifest["splits"].items()
        for entry in of_split
    }
    paths = paths or list(entries) or _in_folder(folder)
    kind = _kind(pattern, paths)
    splits: dict[str, list[Shard]] = {}
    for shard in _described(paths, entries):
        split, _ = entries.get(shard.path, (_split_of(shard.path), None))
        splits.setdefault(split, []).append(shard)
    return Shards(splits, kind, tuple(manifest["classes"]))


def _named(pattern) -> list[str]:
    """The files that a pattern names, in order."""
    if not is_remote(pattern) and os.path.exists(pattern):  # whatever signs its name has
        return [pattern]
    return list(dict.fromkeys(itertools.chain(*map(_matching, expand_braces(pattern)))))


def _matching(path):
    if "*" in path or (glob.has_magic(path) and not is_remote(path) and not os.path.exists(path)):
        return _listed(path, lambda files, name: files.glob(name)) or [path]
    return [path]


def _in_folder(folder) -> list[str]:
    """The shards in a folder or, if it has none, in the folders of a split or the one in it."""
    listed = lambda path: _listed(path, lambda files, name: files.ls(name, detail=False))
    shards = lambda paths: [path for path in paths if format_of(path) or COMPRESSED.search(path)]
    paths = listed(folder)
    if any(shards(paths)) or folder.startswith("http"):
        return shards(paths)
    inside = [path for path in paths if ask(path, lambda files, name: files.isdir(name))]
    below = {path: of_path for path in inside if (of_path := shards(listed(path)))}
    if len(below) > 1 and not {_name(path) for path in below} <= {*SPLITS}:
        raise ValueError(
            f"A folder must hold shards of one data set. Received: {folder!r} with shards in "
            f"{', '.join(map(_name, below))}. Give one of them, such as shards:{next(iter(below))}"
        )
    return [*itertools.chain(*below.values())] or [path for path in paths if path not in inside]


def _name(path):
    return path.rpartition("/")[2]


def _listed(path, names: Callable[[Any, str], list[str]]) -> list[str]:
    """The files that a file system lists, sorted; not the hidden ones."""
    whole = lambda files, name: files.unstrip_protocol(name) if is_remote(path) else name
    paths = ask(path, lambda files, name: [whole(files, one) for one in names(files, name)])
    return sorted(path for path in paths if not is_junk(_name(path)))


def expand_braces(pattern: str) -> list[str]:
    """Returns the names that `{a,b}` and `{000..127}` stand for.

    Raises:
        ValueError: If there are more than a million, or none.
    """
    texts = re.split(r"\{([^{}]*)\}", pattern)
    choices = [_choices(text) if i % 2 else [text] for i, text in enumerate(texts)]
    if not 0 < math.prod(map(len, choices)) <= MOST_SHARDS:
        raise ValueError(
            f"A range in a pattern must ascend, and a pattern must name {MOST_SHARDS} shards at "
            f"most. Received: {pattern!r}"
        )
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _choices(text):
    if not (bounds := re.fullmatch(r"(\d+)\.\.(\d+)", text)):
        return text.split(",")
    first, last = map(int, bounds.groups())
    numbers = range(first, min(last, first + MOST_SHARDS) + 1)  # one too many is refused
    return [f"{number:0{len(bounds[1])}}" for number in numbers]


def _manifest(path) -> Manifest:
    """What `shards.json` says; nothing if there is none."""
    end = LARGEST_JSON_BYTES + 1  # of a larger file, that is too much to be JSON
    try:
        data = ask(path, lambda files, name: files.cat_file(name, start=0, end=end))
    except FileNotFoundError:
        return Manifest(format="", image_size=None, classes=[], splits={})
    manifest = parse_json(data, repr(path), Manifest, REMEDY)
    for entry in itertools.chain(*manifest["splits"].values()):
        name = entry["file"]
        if name in ("", ".", "..") or set("/\\") & set(name):
            raise ValueError(
                f"{path!r} must name files of its folder. Received: {name!r}. {REMEDY}"
            )
    return manifest


def _described(paths, entries):
    """Yields the shards. What `shards.json` says of those on servers is not asked for again."""
    ask_for = [path for path in paths if not (is_remote(path) and path in entries)]
    statuses = dict(zip(ask_for, read_ahead(size_and_stamp, ask_for, AT_ONCE)))
    for path in paths:
        _, entry = entries.get(path, (None, None))
        size, stamp = statuses[path] if path in statuses else (entry["bytes"], "")
        known = (entry["images"], entry["sha256"]) if entry else ()
        shard = Shard(path, size, stamp, *known)
        if size <= 0:
            raise shard.damaged("it is empty")
        if entry and size != entry["bytes"]:
            raise shard.damaged(f"it has {size} bytes, and {FILE} says {entry['bytes']}")
        yield shard


def _kind(pattern, paths) -> str:
    kinds = {format_of(path) for path in paths}
    if len(kinds) != 1 or None in kinds:
        others = [_name(path) for path in paths if format_of(path) is None]
        names = ", ".join(others[:3] or map(str, kinds)) or "no files"
        compressed = next(filter(COMPRESSED.search, others), None)
        raise ValueError(
            "Shards must be files of one format, with a suffix .tar, .parquet, .tfrecord or "
            f".array_record. Received: {pattern!r} with {names}. "
            + (f"Unpack compressed files: gunzip {compressed}" if compressed else REMEDY_OF_KINDS)
        )
    return str(kinds.pop())


def _split_of(path: str) -> str:
    """The split that a word of a file's name, or else its folder's name, says."""
    *_, folder, name = path.split("/")
    words = [*re.split(r"[^a-z]+", name.lower()), folder.lower()]
    return next((word for word in words if word in SPLITS), "train")
