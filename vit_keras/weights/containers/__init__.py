"""Containers of tensors: `.npz`, safetensors, PyTorch and Keras files, alone or as shards.

Readers load only the tensors that a caller names, and run no code from a file. They check a file's
claims against its size before allocating memory.
"""

import os
from collections.abc import Callable
from typing import TypedDict

from vit_keras.support.checks import DamagedFile, is_text, read_json, short
from vit_keras.support.files import is_plain
from vit_keras.weights.containers import archives, checks
from vit_keras.weights.containers.checks import Reader, Together
from vit_keras.weights.containers.keras_h5 import KerasTensors

INDEX = ".index.json"
SUFFIXES = (f".safetensors{INDEX}", f".bin{INDEX}")


class Index(TypedDict):
    """The shard of each tensor, as transformers writes it."""

    weight_map: dict[str, str]


def read_index(path: str) -> dict[str, str]:
    """Reads an index: `{name of a tensor: name of its shard}`; empty for any other file.

    Raises:
        DamagedFile: The file is not an index, or names a file outside its folder or one of another
            kind.
    """
    if not path.endswith(SUFFIXES):
        return {}
    index, suffix = read_json(path, Index)["weight_map"], _suffix(path)
    is_beside = lambda name: is_text(name) and is_plain(name) and "/" not in name
    others = [name for name in {*index.values()} if not (is_beside(name) and name.endswith(suffix))]
    if others or not index:
        raise DamagedFile(
            f"The index {path!r} must name a {suffix} file in its own folder for each tensor. "
            f"Received: {short(others)}"
        )
    return index


def open_shards(path: str) -> Reader:
    """Opens the shards that an index names; each tensor that it lists must be in one of them."""
    index = read_index(path)
    shards = [os.path.join(os.path.dirname(path), name) for name in sorted({*index.values()})]
    return Together(path, shards, READERS[_suffix(path)], index)


def open_h5(path: str) -> Reader:
    """Opens a `.weights.h5` file, in a KerasHub preset together with the head beside it."""
    folder, name = os.path.split(path)
    head = os.path.join(folder, "task.weights.h5")
    if name == "model.weights.h5" and os.path.isfile(head):
        return Together(path, (path, head), KerasTensors)
    return KerasTensors(path)


def _suffix(path):
    return os.path.splitext(path.removesuffix(INDEX))[1]


READERS: dict[str, Callable[[str], Reader]] = {
    ".npz": archives.NpzTensors,
    ".safetensors": checks.SafetensorsTensors,
    **dict.fromkeys((".pth", ".pt", ".bin", ".ckpt", ".pth.tar"), archives.TorchTensors),
    ".weights.h5": open_h5,
    ".keras": KerasTensors,
    **dict.fromkeys(SUFFIXES, open_shards),
}
# Each takes `(path, (name, array) pairs, note)`. A `.weights.h5` also needs its groups: see
# `keras_h5.write_h5`.
WRITERS = {
    ".npz": archives.write_npz,
    ".safetensors": checks.write_safetensors,
    **dict.fromkeys((".pth", ".pt", ".bin"), archives.write_torch),
}
