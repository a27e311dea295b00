"""`shards.json`, which `pack_shards` writes beside the shards."""

import os
from typing import TypedDict

from vit_keras.data.shards.records import damaged
from vit_keras.files import sha256
from vit_keras.json_files import parse_json, read_json

FILE = "shards.json"
REMEDY = "Restore it; without it, the shards are read by their names, and classes have numbers"


class Entry(TypedDict):
    """A shard."""

    file: str
    images: int
    bytes: int
    sha256: str


class Manifest(TypedDict):
    """What `shards.json` must hold."""

    format: str
    image_size: int | None
    classes: list[str]
    splits: dict[str, list[Entry]]


def read_manifest(path: str, data: bytes | None = None) -> Manifest:
    """Reads `shards.json`, or the `data` that a server has sent.

    Raises:
        ValueError: If it is damaged, or names files outside its folder.
    """
    if data is None:
        manifest = read_json(path, Manifest, REMEDY)
    else:
        manifest = parse_json(data, repr(path), Manifest, REMEDY)
    for entries in manifest["splits"].values():
        for entry in entries:
            name = entry["file"]
            if not name or os.path.basename(name) != name or name in (".", "..") or "\\" in name:
                raise ValueError(
                    f"{path!r} must name files of its folder. Received: {name!r}. {REMEDY}"
                )
    return manifest


def check_sha256(name: str, path: str, expected: str | None) -> None:
    """Compares the content of a shard, in the file `path`, with the hash in `shards.json`, if any.

    Raises:
        ValueError: If they differ.
    """
    if expected is not None and (actual := sha256(path)) != expected:
        raise damaged(name, f"its SHA-256 is {actual}, and {FILE!r} says {expected!r:.70}")


def check_count(path: str, expected: int | None, actual: int) -> None:
    """Compares the number of records of a shard with that in `shards.json`, if any.

    Raises:
        ValueError: If they differ.
    """
    if expected is not None and actual != expected:
        raise damaged(path, f"it has {actual} pictures, and {FILE!r} says {expected}")
