"""Containers of tensors: `.npz`, safetensors, PyTorch and Keras files; one file for each kind.

Readers take tensors one at a time and run nothing that a file says. They compare what a file
claims with its size before any of it takes memory.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from vit_keras.weights.containers.archives import NpzTensors, write_npz
from vit_keras.weights.containers.checks import DamagedFile
from vit_keras.weights.containers.keras_h5 import KerasTensors
from vit_keras.weights.containers.pytorch import TorchTensors, write_torch
from vit_keras.weights.containers.safetensors import SafetensorsTensors, write_safetensors
from vit_keras.weights.containers.sharded import SUFFIXES, ShardedTensors


class Reader(Protocol):
    """An open file of tensors.

    Attributes:
        shapes: The shape of each tensor, by name.
        metadata: What else the file says.
        elsewhere: The file of each tensor that is not in the file itself, but in one beside it.
        recorded: Whether the file carries this package's SHA-256.
    """

    shapes: dict[str, tuple[int, ...]]
    metadata: dict[str, str]
    elsewhere: dict[str, str]
    recorded: bool

    def raw(self, name: str) -> np.ndarray:
        """Returns a tensor as the file holds it; compares the checksum that the container has."""

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor as a floating-point array."""

    def verify(self) -> None:
        """Raises `ValueError` if checksums differ that `raw` does not compare."""

    def close(self) -> None:
        """Closes the file."""


READERS: dict[str, Callable[[str], Reader]] = {
    ".npz": NpzTensors,
    ".safetensors": SafetensorsTensors,
    ".pth": TorchTensors,
    ".pt": TorchTensors,
    ".bin": TorchTensors,
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

__all__ = ["READERS", "WRITERS", "DamagedFile", "Reader"]
