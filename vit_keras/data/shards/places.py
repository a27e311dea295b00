"""Which shards a pattern names, and to which splits they belong."""

import glob
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vit_keras.data.dataset import HELD_OUT
from vit_keras.data.shards.formats import FORMATS, format_of
from vit_keras.data.shards.manifest import FILE, Manifest, read_manifest
from vit_keras.data.shards.patterns import expand_braces
from vit_keras.data.shards.records import damaged
from vit_keras.data.shards.remote import (
    is_remote,
    list_folder,
    list_remote,
    read_small,
    stat_remote,
)
from vit_keras.data.shards.shard_files import Shard

SPLITS = ("train", *HELD_OUT)


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
        pattern: A folder, a file, a URL of one, or names with `*`, `?`, `[ab]`, `{a,b}` or
            `{000..127}`; in URLs, `?` and `[` stand for themselves.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the files have no known format, or several, or if `shards.json` is
            damaged or says other files.
    """
    listed, folder = list_remote(pattern) if is_remote(pattern) else _listed(pattern)
    manifest = _manifest(folder)
    entries = {
        f"{folder}/{entry['file']}" if folder else entry["file"]: (split, entry)
        for split, of_split in (manifest["splits"].items() if manifest else ())
        for entry in of_split
    }
    if not listed:  # the pattern is a folder
        listed = list(entries) or (list_folder if is_remote(pattern) else _in_folder)(folder)
    kind = _kind(pattern, listed)
    splits: dict[str, list[Shard]] = {}
    for shard in _described(listed, entries, f"{folder}/{FILE}"):
        split, _ = entries.get(shard.path, (_split_of(shard.path), None))
        splits.setdefault(split, []).append(shard)
    return Shards(splits, kind, tuple(manifest["classes"] if manifest else ()))


def _listed(pattern: str) -> tuple[list[str], str]:
    """The files that a pattern names, in order, and their folder; no files for a folder."""
    if os.path.isdir(pattern):
        return [], pattern.rstrip(os.sep) or os.sep
    if os.path.exists(pattern):  # whatever signs its name has
        paths = [pattern]
    else:
        expanded = [sorted(glob.glob(name)) or [name] for name in expand_braces(pattern)]
        paths = list(dict.fromkeys(itertools.chain(*expanded)))
    if missing := [path for path in paths if not os.path.isfile(path)]:
        raise FileNotFoundError(
            f"`dataset` shards:PATTERN needs files. Received: {pattern!r}, and there is no file "
            f"{missing[0]!r}"
        )
    return paths, os.path.dirname(paths[0])


def _in_folder(folder):
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if format_of(name)]


def _manifest(folder) -> Manifest | None:
    """What `shards.json` in a folder says, if there is one."""
    path = f"{folder}/{FILE}" if folder else FILE
    if not is_remote(path):
        return read_manifest(path) if os.path.isfile(path) else None
    data = read_small(path)
    return None if data is None else read_manifest(path, data)


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


def _described(paths, entries, note) -> Iterator[Shard]:
    """The shards at some paths. Of those on servers, what `shards.json` says need not be asked."""
    unknown = [path for path in paths if is_remote(path) and path not in entries]
    statuses = dict(zip(unknown, stat_remote(unknown)))
    for path in paths:
        _, entry = entries.get(path, (None, None))
        if path in statuses:
            size, stamp = statuses[path]
        elif is_remote(path):
            size, stamp = entry["bytes"], ""
        elif os.path.isfile(path):
            size, stamp = os.path.getsize(path), str(os.stat(path).st_mtime_ns)
        else:
            raise FileNotFoundError(f"There is no file {path!r}, which {note!r} names. Restore it")
        if size <= 0:
            raise damaged(path, "it is empty")
        if entry is None:
            yield Shard(path, size, stamp)
        elif size != entry["bytes"]:
            raise damaged(path, f"it has {size} bytes, and {note!r} says {entry['bytes']}")
        else:
            yield Shard(path, size, stamp, entry["images"], entry["sha256"])
