"""The SHA-256 of files that carry none, recorded at their first use and compared later.

The records are a JSON file in the package's folder of the Keras cache. A file that was downloaded
by name has its own record beside it.
"""

import contextlib
import datetime
import json
import os
import warnings
from typing import Any

from vit_keras.file_lock import exclusive_lock
from vit_keras.files import sha256, write_text
from vit_keras.weights.published import integrity
from vit_keras.weights.published.download import cache_folder

MOST_FILES = 1000  # records beyond these are dropped, the oldest first
FIELDS = {"sha256": str, "bytes": int, "modified_ns": int, "first_used": str}


def records_file() -> str:
    """The path of the records, `first_use.json` in the package's folder of the Keras cache."""
    return os.path.join(cache_folder(), "first_use.json")


def look_up(path: str) -> dict[str, Any] | None:
    """What was recorded when the file was first used; None if nothing was.

    Returns:
        A dictionary with `sha256`, `bytes`, `modified_ns` and `first_used`, a date.
    """
    return _read().get(os.path.realpath(path))


def check(path: str) -> None:
    """Compares the file with the record of its first use, or makes the record.

    Files whose SHA-256 was compared when they were downloaded are left out.

    Raises:
        ValueError: If the content changed although size and time did not, which is damage.

    Warns:
        UserWarning: If another file took its place. The new one is then on record.
    """
    path = os.path.abspath(path)
    if integrity.was_checked(path):
        return
    state = os.stat(path)
    record = {"sha256": sha256(path), "bytes": state.st_size, "modified_ns": state.st_mtime_ns}
    if _agrees_with_download(path, record["sha256"]):
        return
    known = look_up(path)
    if known is not None and known["sha256"] != record["sha256"]:
        _refuse_damage(path, known, record)
        warnings.warn(
            f"{path!r} is not the file that was first used on {known['first_used']}: its SHA-256 "
            f"was {known['sha256']} and is {record['sha256']}. If you replaced it on purpose, "
            "there is nothing to do: the new one is on record now, and this is said once. "
            "Otherwise restore it from its source",
            stacklevel=2,
        )
        known = None
    stamps = ("bytes", "modified_ns")
    if known is None or any(known[name] != record[name] for name in stamps):
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        first = now if known is None else known["first_used"]
        _write(os.path.realpath(path), {**record, "first_used": first})


def _agrees_with_download(path, digest):
    """Compares a file of the cache with the record of its download, if there is one."""
    in_cache = os.path.realpath(path).startswith(os.path.realpath(cache_folder()) + os.sep)
    expected = integrity.recorded(path) if in_cache else None
    if expected not in (None, digest):
        raise ValueError(
            f"{path!r} is not the file that was downloaded: its SHA-256 was {expected} and is "
            f"{digest}. Remove it, and it will be downloaded again"
        )
    return expected is not None


def _refuse_damage(path, known, record):
    """Raises ValueError for other content of equal size and time: no program writes so."""
    if all(known[name] == record[name] for name in ("bytes", "modified_ns")):
        raise ValueError(
            f"{path!r} is damaged: its content changed since it was first used on "
            f"{known['first_used']}, although its size and its time of modification did not. Its "
            f"SHA-256 was {known['sha256']} and is {record['sha256']}. Restore it from its source. "
            f"If you replaced it on purpose by a file of the same time, run: touch {path}"
        )


def _read() -> dict[str, dict[str, Any]]:
    """`{real path: record}`; empty if there are none, or none that can be read."""
    try:
        with open(records_file(), encoding="utf-8") as file:
            records = json.load(file)
        return {path: record for path, record in records.items() if _is_record(record)}
    except OSError:
        return {}
    except (ValueError, AttributeError, RecursionError) as error:
        warnings.warn(
            f"The records of first uses in {records_file()!r} are damaged ({error}); new ones are "
            "begun",
            stacklevel=3,
        )
        return {}


def _is_record(record):
    return isinstance(record, dict) and all(
        isinstance(record.get(name), kind) for name, kind in FIELDS.items()
    )


def _write(path, record):
    """Adds a record, as far as the cache can be written."""
    target = records_file()
    if not os.path.isabs(os.path.expanduser("~")) and "KERAS_HOME" not in os.environ:
        return  # there is no home
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with exclusive_lock(f"{target}.lock", lambda: None):
            records = {**_read(), path: record}
            newest = sorted(records, key=lambda name: records[name]["first_used"])[-MOST_FILES:]
            write_text(target, json.dumps({name: records[name] for name in newest}, indent=1))
