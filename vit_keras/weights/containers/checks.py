"""Checks of what a file of tensors claims, shared by all readers."""

import collections
import contextlib
import os
import zipfile
from collections.abc import Iterator

import numpy as np

# A file may claim this many times its size, since zeros compress well.
LARGEST_EXPANSION = 4
# Claims up to this many bytes are allowed whatever the size of the file.
ALWAYS_ALLOWED_BYTES = 2**26
# A header or a directory takes up to 25 times its bytes once it is parsed. Those of the largest
# published files have 200 kB.
LARGEST_HEADER_BYTES = 2**23


class DamagedFile(ValueError):
    """A file of weights whose content contradicts its name or its header."""


class UnreadModel(ValueError):
    """A file of weights that is whole, and whose model this package does not read."""


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


def check_directory(path: str, archive: zipfile.ZipFile) -> None:
    """Checks what a ZIP archive's directory claims: sizes, and each name once.

    Raises:
        DamagedFile: If the members would take far more memory than the file, as in `check_claim`,
            or if two of them have one name, of which readers take different ones.
    """
    check_claim(path, sum(entry.file_size for entry in archive.infolist()))
    counts = collections.Counter(archive.namelist())
    if twice := [name for name, count in counts.items() if count > 1]:
        raise DamagedFile(
            f"An archive must hold each name once. Received: {path!r}, which holds "
            f"{twice[0][:200]!r} {counts[twice[0]]} times; write it again"
        )


@contextlib.contextmanager
def readable(fault: str) -> Iterator[None]:
    """Raises DamagedFile for whatever libraries raise of damaged files.

    Args:
        fault: What the file then is, such as "'a.npz' is damaged".

    Raises:
        DamagedFile: Anything is raised but a missing package or another DamagedFile.
    """
    try:
        yield
    except (DamagedFile, ImportError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise DamagedFile(f"{fault} ({reason})") from error


def as_float(array: np.ndarray, name: str, path: str) -> np.ndarray:
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
        raise DamagedFile(
            f"Weights must be floating-point. Received: {name!r} of {array.dtype} in {path!r}"
        )
    return array


def fits(array: np.ndarray, dtype: str) -> bool:
    """Whether all numbers are finite in the type of a variable, such as "float16"."""
    if np.asarray(array).dtype.kind in "iub":
        return True
    with np.errstate(over="ignore"):  # Keras imports ml_dtypes, which gives NumPy "bfloat16"
        return bool(np.isfinite(np.asarray(array).astype(dtype)).all())
