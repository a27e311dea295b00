"""Checks that a downloaded file is the published one: its size, its content, its SHA-256."""

import contextlib
import json
import os
import zipfile
from collections.abc import Callable

from vit_keras import files
from vit_keras.files import sha256, write_text
from vit_keras.weights.containers import READERS
from vit_keras.weights.containers.tensor_hashes import check_tensors
from vit_keras.weights.published.catalog import SIZE_TOLERANCE, fits_size
from vit_keras.weights.published.http_download import forget

# What is taken of a file whose size is not published: twice the largest one of the table, in
# float32, and far more than any configuration.
LARGEST_BYTES, LARGEST_JSON_BYTES = 2**34, 2**24
_TABLE, _RECORD = "the table of published checkpoints", "the record of the first download"
_CHECKED: set[tuple[str, int, int]] = set()  # files that this process has compared


def largest(row) -> int:
    """The most bytes that the download of a row may have."""
    if row.size_mib is not None:
        return int(row.size_mib * (1 + SIZE_TOLERANCE) * 2**20)
    return LARGEST_JSON_BYTES if row.path.endswith(".json") else LARGEST_BYTES


def admit(row, part, target, url):
    """Verifies the download `part` and moves it to `target`.

    Raises:
        ValueError: If the download is not the published file; it is then removed.
    """
    digest = sha256(part)
    expected, origin = _expected(row, target)
    fault = _fault(row, part, digest, expected, origin)
    if fault:
        forget(part)
        outdated = (
            f", or {_record(target)!r} is out of date: remove it" if origin == _RECORD else ""
        )
        raise ValueError(
            f"{url} is not the published file: what arrived {fault}. It was removed. Download it "
            f"again; if the error stays, the server or a proxy sends another file{outdated}."
        )
    if row.sha256 is None:
        _write_record(target, digest)  # before the file, so that readers can always check it
    os.replace(part, target)
    forget(part)
    _CHECKED.add(_state(target))


def check_cached(row, target):
    """Compares the cached file with its hash, and records the hash of a file put there by hand.

    Raises:
        ValueError: If the file is not the published one.
    """
    state, digest = _state(target), sha256(target)
    expected, origin = _expected(row, target)
    fault = _fault(row, target, digest, expected, origin)
    if fault:
        raise ValueError(
            f"{target!r} is not the published file: it {fault}. Remove it, and it will be "
            "downloaded again."
        )
    if expected is None:
        with contextlib.suppress(OSError):  # nothing can change the file in a read-only cache
            _write_record(target, digest)
    _CHECKED.add(state)


def _state(path):
    """Tells whether a file is still the one that was compared."""
    status = os.stat(path)
    return os.path.realpath(path), status.st_size, status.st_mtime_ns


def was_checked(path: str) -> bool:
    """Whether this process has compared the file with its published or recorded SHA-256."""
    return _state(path) in _CHECKED


def mark_checked(path: str) -> None:
    """Keeps in mind that this process has compared the file with its published SHA-256."""
    _CHECKED.add(_state(path))


def remove_remains(target: str) -> None:
    """Removes what a process that was hindered left beside a file that is in the cache."""
    forget(f"{target}.part")
    files.remove_remains(_record(target))


def recorded(path: str) -> str | None:
    """The SHA-256 in the record beside a file of the cache; None if there is none."""
    return _read_record(path) if os.path.isfile(_record(path)) else None


def _fault(row, path, digest, expected, origin):
    """Returns what is wrong with the file, or None; without a hash, reads its content."""
    if expected is not None:
        return None if digest == expected else f"has SHA-256 {digest}, and {origin} says {expected}"
    if not fits_size(row, path):
        size_mib = os.path.getsize(path) / 2**20
        return f"has {size_mib:.3g} MiB, and the published file has {row.size_mib} MiB"
    suffix = os.path.splitext(row.path)[1]
    is_complete, kind = FORMS.get(suffix, (None, None))
    if is_complete is not None and not is_complete(path):
        return f"is no complete {kind}"
    return _fault_in_content(path, suffix)


def _fault_in_content(path, suffix):
    """Reads all tensors once: their checksums are compared, and their numbers must be finite."""
    if suffix not in READERS:
        return None
    try:
        with contextlib.closing(READERS[suffix](path)) as tensors:
            tensors.verify()
            check_tensors(path, tensors, tensors.shapes, integers=True)
    except ValueError as error:
        return f"is damaged ({error})"
    except ImportError:  # neither can it be loaded
        return None
    return None


def _is_zip(path):
    """Whether the archive has the directory at its end, which one that was cut short has not."""
    try:
        with zipfile.ZipFile(path):  # unlike `is_zipfile`, lets the errors of a disk out
            return True
    except zipfile.BadZipFile:
        return False


def _is_safetensors(path):
    """Whether the file has a header that says as many bytes as there are."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > os.path.getsize(path) - 8:
            return False
        try:
            rows = json.loads(file.read(size))
            ends = [row["data_offsets"][1] for name, row in rows.items() if name != "__metadata__"]
        except (ValueError, TypeError, KeyError, AttributeError):
            return False
    return 8 + size + max(ends, default=0) == os.path.getsize(path)


def _is_json(path):
    with open(path, "rb") as file:
        try:
            return isinstance(json.load(file), dict)
        except ValueError:
            return False


# What tells that a file of a suffix is whole, and what it is called.
FORMS: dict[str, tuple[Callable[[str], bool], str]] = {
    ".npz": (_is_zip, ".npz archive"),
    ".safetensors": (_is_safetensors, "safetensors file"),
    ".json": (_is_json, "JSON object"),
}


def _expected(row, target):
    if row.sha256 is not None:
        return row.sha256, _TABLE
    digest = recorded(target)
    return digest, None if digest is None else _RECORD


def _read_record(target):
    with open(_record(target), encoding="utf-8", errors="replace") as file:
        digest = file.read().partition(" ")[0].strip()
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise ValueError(
            f"{_record(target)!r} must begin with the SHA-256 of {os.path.basename(target)!r}, "
            f"64 hexadecimal digits. Received: {digest[:80]!r}; remove it, and it is made again"
        )
    return digest


def _record(target):
    return f"{target}.sha256"


def _write_record(target, digest):
    """Writes the record that `sha256sum --check` reads."""
    write_text(_record(target), f"{digest}  {os.path.basename(target)}\n")
