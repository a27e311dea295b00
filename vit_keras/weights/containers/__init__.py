"""Containers of tensors: `.npz`, safetensors, PyTorch and Keras files, alone or as shards.

Readers load only the tensors that a caller names, and run no code from a file. They check a file's
claims against its size before allocating memory.
"""

import contextlib
import os
from typing import TypedDict

import numpy as np

from vit_keras.support.checks import is_text, listed, short
from vit_keras.support.files import is_plain
from vit_keras.weights.containers import archives, checks
from vit_keras.weights.containers.checks import DamagedFile, Reader
from vit_keras.weights.containers.keras_h5 import KerasTensors

INDEX = ".index.json"
SUFFIXES = (f".safetensors{INDEX}", f".bin{INDEX}")


class Index(TypedDict):
    """The shard of each tensor, as transformers writes it."""

    weight_map: dict[str, str]


def read_index(path: str) -> dict[str, str]:
    """Reads an index: `{name of a tensor: name of its shard}`.

    Raises:
        DamagedFile: The file is not an index, or names a file outside its folder or one of another
            kind.
    """
    shards, suffix = checks.read_json(path, Index)["weight_map"], _suffix(path)
    is_beside = lambda name: is_text(name) and is_plain(name) and "/" not in name
    others = [name for name in shards.values() if not (is_beside(name) and name.endswith(suffix))]
    if others or not shards:
        raise DamagedFile(
            f"The index {path!r} must name a {suffix} file in its own folder for each tensor. "
            f"Received: {short(others)}"
        )
    return shards


def shards_of(path: str) -> list[str]:
    """Returns the names of the shards in an index; an empty list for any other file."""
    return sorted({*read_index(path).values()}) if path.endswith(SUFFIXES) else []


class ShardedTensors(Reader):
    """Reads the shards that an index names, each with the reader of its kind.

    Each tensor must be in the shard that the index names, and in no other.
    """

    def _open(self):
        folder = os.path.dirname(self.path)
        index = read_index(self.path).items()
        self.elsewhere = {name: os.path.join(folder, shard) for name, shard in index}
        self.readers: dict[str, Reader] = {}
        for shard in sorted({*self.elsewhere.values()}):
            tensors = READERS[_suffix(self.path)](shard)
            self.readers[shard] = self.stack.enter_context(contextlib.closing(tensors))
        held = {(name, shard) for shard, tensors in self.readers.items() for name in tensors.shapes}
        if faults := sorted(name for name, _ in held ^ {*self.elsewhere.items()}):
            raise DamagedFile(
                f"Each tensor must be in the shard that {self.path!r} names, and in no other. "
                f"Misplaced: {listed(faults)}. Download the index and its shards again"
            )
        for tensors in self.readers.values():
            self.shapes |= tensors.shapes
            self.digests |= tensors.digests

    def raw(self, name: str) -> np.ndarray:
        return self.readers[self.elsewhere[name]].raw(name)


def _suffix(path):
    return os.path.splitext(path.removesuffix(INDEX))[1]


READERS: dict[str, type[Reader]] = {
    ".npz": archives.NpzTensors,
    ".safetensors": checks.SafetensorsTensors,
    **dict.fromkeys((".pth", ".pt", ".bin", ".ckpt", ".pth.tar"), archives.TorchTensors),
    ".weights.h5": KerasTensors,
    ".keras": KerasTensors,
    **dict.fromkeys(SUFFIXES, ShardedTensors),
}
# Each takes `(path, (name, array) pairs, note)`. A `.weights.h5` also needs its groups: see
# `keras_h5.write_h5`.
WRITERS = {
    ".npz": archives.write_npz,
    ".safetensors": checks.write_safetensors,
    **dict.fromkeys((".pth", ".pt", ".bin"), archives.write_torch),
}


__all__ = ["READERS", "WRITERS", "DamagedFile", "Reader"]
