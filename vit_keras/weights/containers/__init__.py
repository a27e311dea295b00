"""Containers of tensors: `.npz`, safetensors, PyTorch and Keras files; one module for each kind.

Readers load one tensor at a time and run no code from a file. They check a file's claims against
its size before allocating memory.
"""

import zipfile
from collections.abc import Callable
from typing import Protocol

import numpy as np

from vit_keras.support.files import is_zip
from vit_keras.weights.containers.archives import NpzTensors, write_npz
from vit_keras.weights.containers.checks import DamagedFile, readable
from vit_keras.weights.containers.keras_h5 import KerasTensors
from vit_keras.weights.containers.pytorch import TorchTensors, write_torch
from vit_keras.weights.containers.safetensors import SafetensorsTensors, write_safetensors
from vit_keras.weights.containers.sharded import SUFFIXES, ShardedTensors


class Reader(Protocol):
    """An open file of tensors.

    Attributes:
        shapes: The shape of each tensor, by name.
        metadata: Other information in the file.
        elsewhere: The file of each tensor that lies in another file beside this one.
        recorded: Whether the file carries this package's SHA-256.
    """

    shapes: dict[str, tuple[int, ...]]
    metadata: dict[str, str]
    elsewhere: dict[str, str]
    recorded: bool

    def raw(self, name: str) -> np.ndarray:
        """Returns a tensor in the file's type; checks the container's checksum."""

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor as a floating-point array."""

    def verify(self) -> None:
        """Raises `ValueError` if checksums differ that `raw` does not check."""

    def close(self) -> None:
        """Closes the file."""


READERS: dict[str, Callable[[str], Reader]] = {
    ".npz": NpzTensors,
    ".safetensors": SafetensorsTensors,
    ".pth": TorchTensors,
    ".pt": TorchTensors,
    ".bin": TorchTensors,
    ".ckpt": TorchTensors,
    ".pth.tar": TorchTensors,
    ".weights.h5": KerasTensors,
    ".keras": KerasTensors,
    **dict.fromkeys(SUFFIXES, ShardedTensors),
}
# `(path, (name, array) pairs, note)`; a `.weights.h5` needs its groups, see `keras_h5.write_h5`.
WRITERS = {
    ".npz": write_npz,
    ".safetensors": write_safetensors,
    ".pth": write_torch,
    ".pt": write_torch,
    ".bin": write_torch,
}


def reader_for(path: str) -> Callable[[str], Reader] | None:
    """Returns the reader for a file by its suffix, or else its content; None if unknown."""
    if named := next((READERS[end] for end in READERS if path.endswith(end)), None):
        return named
    with open(path, "rb") as file:
        start = file.read(9)
    if is_zip(path):
        with readable(f"{path!r} is damaged"), zipfile.ZipFile(path) as archive:
            arrays = all(name.endswith(".npy") for name in archive.namelist())
        return NpzTensors if arrays else TorchTensors
    starts = {b"\x80\x02": TorchTensors, b"\x89HDF": KerasTensors}
    by_start = next((starts[known] for known in starts if start.startswith(known)), None)
    return by_start or (SafetensorsTensors if start[8:] == b"{" else None)


__all__ = ["READERS", "WRITERS", "DamagedFile", "Reader", "reader_for"]
