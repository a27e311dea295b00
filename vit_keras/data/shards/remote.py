"""Shards on servers and in object stores, through fsspec: lists them and reads their bytes.

What fails is tried again, after longer and longer pauses.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from vit_keras import extras
from vit_keras.data.read_ahead import read_ahead
from vit_keras.data.shards.formats import format_of
from vit_keras.data.shards.patterns import expand_braces
from vit_keras.json_files import LARGEST_JSON_BYTES

ATTEMPTS, FIRST_PAUSE, LONGEST_PAUSE = 7, 0.5, 16.0  # seconds; half a minute in all
FINAL = (FileNotFoundError, PermissionError, NotImplementedError, ImportError)
AT_ONCE, CHUNK, CHUNKS = 16, 2**24, 4  # answers that are awaited together; bytes of one
STAMPS = ("ETag", "etag", "md5Hash", "blob_id", "mtime", "LastModified", "Last-Modified")

Result = TypeVar("Result")


class UnreachableError(OSError):
    """A file could not be read, however often that was tried."""


def is_remote(path: str) -> bool:
    """Whether a path is a URL such as `s3://bucket/name`."""
    return "://" in path


def list_remote(pattern: str) -> tuple[list[str], str]:
    """Returns the URLs that a pattern names, in order, and the folder in which they lie.

    Args:
        pattern: A folder, a file, or names with `*`, `{a,b}` or `{000..127}`.
    """
    last = pattern.rstrip("/").rpartition("/")[2]
    if format_of(last) is None and not set("*{") & set(last):
        return [], pattern.rstrip("/")
    urls = list(itertools.chain(*map(_matching, expand_braces(pattern))))
    return list(dict.fromkeys(urls)), (urls or [pattern])[0].rpartition("/")[0]


def list_folder(folder: str) -> list[str]:
    """Returns the URLs of the shards in a folder, sorted."""
    files, path = _opened(folder)
    names = _attempt(folder, lambda: files.ls(path, detail=False))
    return sorted(files.unstrip_protocol(name) for name in names if format_of(name))


def read_small(url: str) -> bytes | None:
    """Reads a file of JSON; None if there is none. Of a larger one, it reads too much to be one."""
    files, path = _opened(url)
    try:
        return _attempt(url, lambda: files.cat_file(path, start=0, end=LARGEST_JSON_BYTES + 1))
    except FileNotFoundError:
        return None


def stat_remote(urls: list[str]) -> Iterator[tuple[int, str]]:
    """Yields the size in bytes of each file, and what changes when the file does.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If its server does not say how large it is.
    """
    return read_ahead(_stat, urls, AT_ONCE)


def read_range(url: str, offset: int, length: int) -> bytes:
    """Reads some bytes of a file.

    Raises:
        UnreachableError: If that fails again and again.
    """
    files, path = _opened(url)

    def read():
        data = files.cat_file(path, start=offset, end=offset + length) if length else b""
        if len(data) != length:
            raise OSError(f"{len(data)} bytes came instead of {length}")
        return data

    return _attempt(url, read)


def read_chunks(url: str, size: int) -> Iterator[bytes]:
    """Yields the bytes of a file, of which some are read ahead."""
    read = lambda start: read_range(url, start, min(CHUNK, size - start))
    return read_ahead(read, range(0, size, CHUNK), CHUNKS)


def _opened(url) -> tuple[Any, str]:
    purpose = "Reading shards from elsewhere"
    if url.startswith(("http://", "https://")):
        extras.check("aiohttp", extra="shards", purpose=purpose)
    fsspec = extras.require("fsspec.core", extra="shards", purpose=purpose)
    try:
        return fsspec.url_to_fs(url)
    except ImportError as error:  # each kind of store has a package of its own
        raise ImportError(f"{url!r} cannot be read: {error}") from error


def _matching(url):
    if "*" not in url:
        return [url]
    files, path = _opened(url)
    names = _attempt(url, lambda: files.glob(path))
    return sorted(map(files.unstrip_protocol, names))


def _stat(url):
    files, path = _opened(url)
    info = _attempt(url, lambda: files.info(path))
    if not isinstance(info.get("size"), int):
        raise ValueError(
            f"{url!r} must say its size. Received: {info.get('size')}. Use a server "
            "that sends Content-Length and takes ranges"
        )
    return info["size"], next((str(info[key]) for key in STAMPS if info.get(key)), "")


def _attempt(url: str, function: Callable[[], Result]) -> Result:
    """Calls a function until it succeeds; what no repetition can change is raised at once."""
    for attempt in range(ATTEMPTS):
        try:
            return function()
        except FINAL as error:
            if isinstance(error, FileNotFoundError):
                raise FileNotFoundError(f"There is no file {url!r}") from error
            raise
        except Exception as error:  # each kind of store has errors of its own
            if attempt == ATTEMPTS - 1:
                raise UnreachableError(
                    f"{url!r} could not be read in {ATTEMPTS} attempts ({error!r:.200}). The run "
                    "goes on with the same command when it can be read again"
                ) from error
            time.sleep(min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE))
    raise AssertionError("unreachable")
