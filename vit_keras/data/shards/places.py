"""Which shards a pattern names, and to which splits they belong."""

import glob
import itertools
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from vit_keras.data.dataset import HELD_OUT
from vit_keras.data.shards.formats import FORMATS, format_of
from vit_keras.data.shards.manifest import FILE, read_manifest
from vit_keras.data.shards.records import damaged

SPLITS = ("train", *HELD_OUT)
BRACES = re.compile(r"\{([^{}]*)\}")
NUMBERS = re.compile(r"(\d+)\.\.(\d+)")
MOST_SHARDS = 10**6


class Shard(NamedTuple):
    """A file that holds records.

    Attributes:
        path: Where it is.
        size: Its bytes.
        stamp: The time of its last change.
        images: The number of pictures that `shards.json` says, if any.
        sha256: The SHA-256 that `shards.json` says, if any.
    """

    path: str
    size: int
    stamp: str
    images: int | None = None
    sha256: str | None = None


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

    A shard whose name has one of the words train, test, validation, val, valid, or dev, or whose
    folder has this name, belongs to that split, and others to train, unless `shards.json` says.

    Args:
        pattern: A folder, a file, or names with `*`, `?`, `[ab]`, `{a,b}` or `{000..127}`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the files have no known format, or several, or if `shards.json` is
            damaged or says other files.
    """
    listed, note = _listed(pattern)
    manifest = read_manifest(note) if os.path.isfile(note) else None
    entries = {
        os.path.join(os.path.dirname(note), entry["file"]): (split, entry)
        for split, of_split in (manifest["splits"].items() if manifest else ())
        for entry in of_split
    }
    if os.path.isdir(pattern) and entries:
        listed = list(entries)
    kind = _kind(pattern, listed)
    splits: dict[str, list[Shard]] = {}
    for path in listed:
        split, entry = entries.get(path, (_split_of(path), None))
        splits.setdefault(split, []).append(_shard(path, entry, note))
    return Shards(splits, kind, tuple(manifest["classes"] if manifest else ()))


def expand_braces(pattern: str) -> list[str]:
    """Returns the names that `{a,b}` and `{000..127}` stand for.

    Raises:
        ValueError: If there are more than a million.
    """
    texts = BRACES.split(pattern)
    choices = [[text] if i % 2 == 0 else _choices(pattern, text) for i, text in enumerate(texts)]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > MOST_SHARDS:
        raise ValueError(f"A pattern may name {MOST_SHARDS} shards at most. Received: {pattern!r}")
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _choices(pattern, text):
    bounds = NUMBERS.fullmatch(text)
    if not bounds:
        return text.split(",")
    first, last = map(int, bounds.groups())
    if not first <= last < first + MOST_SHARDS:
        raise ValueError(
            f"A range in a pattern must ascend, over {MOST_SHARDS} numbers at most. "
            f"Received: {{{text}}} in {pattern!r}"
        )
    return [f"{number:0{len(bounds[1])}}" for number in range(first, last + 1)]


def _listed(pattern: str) -> tuple[list[str], str]:
    """The files that a pattern names, in order, and where their `shards.json` would lie."""
    if os.path.isdir(pattern):
        names = sorted(name for name in os.listdir(pattern) if format_of(name))
        paths = [os.path.join(pattern, name) for name in names]
    elif os.path.exists(pattern):  # whatever signs its name has
        paths = [pattern]
    else:
        expanded = [sorted(glob.glob(name)) or [name] for name in expand_braces(pattern)]
        paths = list(dict.fromkeys(itertools.chain(*expanded)))
    if missing := [path for path in paths if not os.path.isfile(path)]:
        raise FileNotFoundError(
            f"`dataset` shards:PATTERN needs files. Received: {pattern!r}, and there is no file "
            f"{missing[0]!r}"
        )
    folder = pattern if os.path.isdir(pattern) else os.path.dirname(paths[0])
    return paths, os.path.join(folder, FILE)


def _kind(pattern, paths: Sequence[str]) -> str:
    kinds = {format_of(path) for path in paths}
    if len(kinds) != 1 or None in kinds:
        names = ", ".join(sorted(filter(None, kinds))) or "none"
        raise ValueError(
            "Shards must be files of one format, with a suffix .tar, .parquet, .tfrecord or "
            f".array_record: {', '.join(FORMATS)}. Received: {pattern!r} with {names}. Unpack "
            "compressed files"
        )
    return str(kinds.pop())


def _split_of(path: str) -> str:
    """The split that a word of a file's name, or else its folder's name, says."""
    folder, name = os.path.split(path)
    words = [*re.split(r"[^a-z]+", name.lower()), os.path.basename(folder).lower()]
    return next((word for word in words if word in SPLITS), "train")


def _shard(path, entry, note):
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no file {path!r}, which {note!r} names. Restore it")
    status = os.stat(path)
    if not status.st_size:
        raise damaged(path, "it is empty")
    shard = Shard(path, status.st_size, str(status.st_mtime_ns))
    if entry is None:
        return shard
    if status.st_size != entry["bytes"]:
        raise damaged(path, f"it has {status.st_size} bytes, and {note!r} says {entry['bytes']}")
    return shard._replace(images=entry["images"], sha256=entry["sha256"])
