"""Whether a downloaded file is the published one: its size, its format, its SHA-256."""

import contextlib
import hashlib
import os
import zipfile

from vit_keras.files import write_text
from vit_keras.weights.published.http_download import forget

SIZE_TOLERANCE = 0.02  # published sizes are rounded to MiB
_TABLE, _RECORD = "the table of published checkpoints", "the record of the first download"


def admit(row, part, target, url):
    """Moves the verified download `part` to `target`, or removes it and raises ValueError."""
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
            f"again; if that gives the same, the server or a proxy sends another file{outdated}."
        )
    if row.sha256 is None:
        _write_record(target, digest)  # before the file itself: whoever sees that can check it
    os.replace(part, target)
    forget(part)


def check_cached(row, target):
    """Compares the cached file with its hash; records the hash of one that was put by hand."""
    digest = sha256(target)
    expected, origin = _expected(row, target)
    fault = _fault(row, target, digest, expected, origin)
    if fault:
        raise ValueError(
            f"{target!r} is not the published file: it {fault}. "
            "Remove it to have it downloaded again."
        )
    if expected is None:
        with contextlib.suppress(OSError):  # a read-only cache, which nothing can change either
            _write_record(target, digest)


def _fault(row, path, digest, expected, origin):
    """What is wrong with the file, None if nothing; without a hash its size and form must do."""
    if expected is not None:
        return None if digest == expected else f"has SHA-256 {digest}, and {origin} says {expected}"
    size_mib = os.path.getsize(path) / 2**20
    if row.size_mib is not None and abs(size_mib / row.size_mib - 1) > SIZE_TOLERANCE:
        return f"has {size_mib:.3g} MiB, and {row.size_mib} MiB are published"
    if not zipfile.is_zipfile(path):  # looks for the directory at the end: a cut file has none
        return "is no whole .npz archive"
    return None


def sha256(path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _expected(row, target):
    if row.sha256 is not None:
        return row.sha256, _TABLE
    if not os.path.isfile(_record(target)):
        return None, None
    with open(_record(target), encoding="utf-8", errors="replace") as file:
        digest = file.read().partition(" ")[0].strip()
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise ValueError(
            f"{_record(target)!r} must begin with the SHA-256 of {os.path.basename(target)!r}, "
            f"64 hexadecimal digits. Received: {digest[:80]!r}; remove it to have it written anew"
        )
    return digest, _RECORD


def _record(target):
    return f"{target}.sha256"


def _write_record(target, digest):
    """In the form that `sha256sum --check` reads."""
    write_text(_record(target), f"{digest}  {os.path.basename(target)}\n")
