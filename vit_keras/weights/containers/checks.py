"""Checks of what a file of tensors claims, shared by all readers."""

import os
import zipfile

import numpy as np

# A file may claim this many times its size, since zeros compress well.
LARGEST_EXPANSION = 20
# Claims up to this many bytes are allowed whatever the size of the file.
ALWAYS_ALLOWED_BYTES = 2**28


class DamagedFile(ValueError):
    """A file of weights whose content contradicts its name or its header."""


def check_claim(path: str, claimed_bytes: int) -> None:
    """Checks that a file's tensors take little more memory than the file has bytes.

    Raises:
        DamagedFile: If the tensors would take far more.
    """
    size = os.path.getsize(path)
    if claimed_bytes > max(LARGEST_EXPANSION * size, ALWAYS_ALLOWED_BYTES):
        raise DamagedFile(
            f"Weights may take at most {LARGEST_EXPANSION} times the bytes of their file. "
            f"Received: {path!r}, {size} bytes that claim {claimed_bytes} bytes of tensors; no "
            "such file is opened"
        )


def check_archive_claim(path: str, archive: zipfile.ZipFile) -> None:
    """As `check_claim`, for the sizes that a ZIP archive's directory claims."""
    check_claim(path, sum(entry.file_size for entry in archive.infolist()))


def as_float(array: np.ndarray, name: str) -> np.ndarray:
    """Returns half types as float32, and float32 and float64 as they are.

    NumPy stores bfloat16 as the type `|V2`.

    Raises:
        DamagedFile: If the array has another type.
    """
    if array.dtype == np.dtype("V2"):
        bits = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32)
    if array.dtype.name in ("float16", "bfloat16"):
        return array.astype(np.float32)
    if array.dtype not in (np.float32, np.float64):
        raise DamagedFile(f"Weights must be floating-point. Received: {name!r} of {array.dtype}")
    return array
