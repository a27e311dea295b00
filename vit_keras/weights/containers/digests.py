"""Checks before a tensor is assigned: a file's SHA-256, types, and finite numbers.

A safetensors or HDF5 file of this package has a SHA-256 of its note and tensors. For each tensor,
sorted by name, it covers the line `NAME DTYPE SHAPE`, such as `head/kernel float32 768,1000`, and
the elements in C order, little-endian. Archives have checksums of their members.
"""

import hashlib
from collections.abc import Collection, Iterable

import numpy as np

from vit_keras.weights.containers.checks import DamagedFile, as_float, fits
from vit_keras.weights.containers.h5_names import DIGEST as KEY

MOST_NAMES = 5  # to list in a message
REMEDY = (
    "Restore it from a copy. If another program changed it on purpose, it must leave out what is "
    f"called {KEY!r} in the file"
)


def digest(arrays: Iterable[tuple[str, np.ndarray]], note: str = "") -> str:
    """Returns the SHA-256 of a note and of (name, array) pairs, sorted by name."""
    result = hashlib.sha256(note.encode())
    for name, array in arrays:
        line = f"\n{name} {array.dtype.name} {','.join(map(str, array.shape))}\n"
        result.update(line.encode(errors="surrogatepass"))
        result.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        del array  # otherwise it keeps the last memory map open
    return result.hexdigest()


def check_digest(tensors, names: Iterable[str], expected: str, path: str, note: str = "") -> None:
    """Raises DamagedFile unless a reader's tensors have the SHA-256 recorded in their file."""
    if digest(((name, tensors.raw(name)) for name in sorted(names)), note) != expected:
        raise DamagedFile(
            f"{path!r} is damaged: its SHA-256 differs from when it was written. {REMEDY}"
        )


def check_tensors(path: str, tensors, used: Collection[str], integers: bool = False) -> float:
    """Reads each tensor once, which checks the container's checksums.

    Args:
        path: The path of the file.
        tensors: Its reader.
        used: The names of the tensors that must be finite floating-point numbers.
        integers: Whether those in `used` may also be integers.

    Returns:
        The largest magnitude in `used`.

    Raises:
        DamagedFile: If a tensor is damaged, or has another type.
        ValueError: If a number is not finite.
    """
    infinite, files, largest = [], tensors.elsewhere, 0.0
    for name in used:
        array = tensors.raw(name)
        if not (integers and array.dtype.kind in "iub"):
            bound = _largest(as_float(array, name, path))
            infinite += [] if np.isfinite(bound) else [name]
            largest = max(largest, bound)
        del array  # otherwise it keeps the last memory map open
    infinite = [f"{name} in {files[name]!r}" if name in files else name for name in infinite]
    if infinite:
        raise ValueError(
            f"Weights must be finite numbers. Received: {path!r}, where these hold NaN or "
            f"infinity: {some(infinite)}. The training that wrote them may have diverged"
        )
    return largest


def _largest(array):
    """Returns the largest magnitude in an array; NaN if it contains NaN."""
    return float(np.maximum(array.max(initial=0), -array.min(initial=0)))


def check_fit(arrays: Iterable[tuple[str, np.ndarray, str]], source: str) -> None:
    """Checks numbers before they are assigned.

    Args:
        arrays: The name of each array, its numbers, and the type of its variable.
        source: The origin of the arrays, for messages.

    Raises:
        ValueError: If numbers are not finite in the types of their variables.
    """
    if large := [f"{name} as {dtype}" for name, array, dtype in arrays if not fits(array, dtype)]:
        raise ValueError(
            "Weights must be finite in the types of the model's variables. Received: "
            f"{source}, where these are too large: {some(large)}"
        )


def some(names: Collection[str]) -> str:
    """Lists the first names, and counts the others."""
    first = ", ".join(list(names)[:MOST_NAMES])
    return first if len(names) <= MOST_NAMES else f"{first} and {len(names) - MOST_NAMES} others"
