"""Reads the bytes of shards in place, through fsspec, or from copies on this machine.

Failed reads are retried after longer and longer pauses.
"""

import contextlib
import functools
import hashlib
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from vit_keras.data.dataset import UnreachableError
from vit_keras.support import extras
from vit_keras.support.files import check_arrived, exclusive_lock, replacing, sha256
from vit_keras.support.machine import read_ahead


class NoRanges(ValueError):
    """A server sends bytes outside the requested range."""


PAUSES = (0.5, 1, 2, 4, 8, 16)  # seconds between attempts
FINAL = (  # errors that a retry cannot fix
    *(FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError),
    *(ImportError, NotImplementedError, NoRanges),
)
LARGEST_PAGE = 2**24  # bytes of a response to a request without a range
ANSWER_SECONDS, LOWEST_RATE = 60, 2**16  # seconds and bytes/s: limits on the time of a response
STAMPS = ("ETag", "etag", "md5Hash", "blob_id", "mtime", "LastModified", "Last-Modified")
CHUNK, CHUNKS = 2**24, 4  # bytes per response, and concurrent responses


class Shard(NamedTuple):
    """A file that holds records.

    Attributes:
        path: The path or URL.
        size: Its size in bytes.
        stamp: A text that changes with the file, such as its modification time.
        images: The number of pictures according to `shards.json`, if known.
        sha256: The SHA-256 according to `shards.json`, if known.
    """

    path: str
    size: int
    stamp: str
    images: int | None = None
    sha256: str | None = None

    def damaged(self, reason: object) -> ValueError:
        """Returns the error for a shard that cannot be read."""
        reason = " ".join(str(reason).split())
        return ValueError(f"{self.path!r} is not a whole shard ({reason}). Restore or remove it")


def is_remote(path: str) -> bool:
    """Whether a path is a URL such as `s3://bucket/name`."""
    return "://" in path


def ask(path: str, question: Callable[[Any, str], Any]) -> Any:
    """Calls `question(file_system, path)` until it succeeds.

    Raises:
        FileNotFoundError: If there is no such file.
        UnreachableError: If every attempt fails.
    """
    files, name = _opened(path)
    for pause in (*PAUSES, 0):
        try:
            return question(files, name)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"There is no file {path!r}") from error
        except FINAL:
            raise
        except Exception as error:  # each kind of store raises its own errors
            last = error
            time.sleep(pause)
    raise UnreachableError(
        f"{path!r} could not be read in {len(PAUSES) + 1} attempts ({last!r:.200}). The same "
        "command continues the run when the file can be read again"
    ) from last


def _opened(path) -> tuple[Any, str]:
    fsspec = extras.require("fsspec")
    if not is_remote(path):  # a local name may have `::`, which chains URLs
        return fsspec.filesystem("file"), path
    options = {}
    if path.startswith(("http://", "https://")):
        seconds = ANSWER_SECONDS  # of silence, also before the answer begins
        timeout = extras.require("aiohttp").ClientTimeout(
            total=seconds + LARGEST_PAGE / LOWEST_RATE, sock_connect=seconds, sock_read=seconds
        )
        client = fsspec.config.conf.get(path.partition(":")[0], {}).get("client_kwargs", {})
        defaults = {"response_class": _bounded_answer(), "timeout": timeout}
        options["client_kwargs"] = {**defaults, **client}
    return fsspec.url_to_fs(path, **options)  # names the package that a kind of store needs


@functools.cache
def _bounded_answer():
    """aiohttp's response class, limited to the bytes that a request needs."""
    import aiohttp

    class BoundedAnswer(aiohttp.ClientResponse):
        async def read(self):
            first, _, last = self.request_info.headers.get("Range", "")[6:].partition("-")
            most = int(last) - int(first) + 1 if last else LARGEST_PAGE
            if self.status == 200 and first not in ("", "0"):
                raise NoRanges(f"The server of '{self.url}' must support range requests")
            content = bytearray(self._body or b"")
            while len(content) < most and (more := await self.content.read(most)):
                content += more
            self._body = bytes(content[:most])
            return self._body

    return BoundedAnswer


def size_and_stamp(path: str) -> tuple[int, str]:
    """Returns the size of a file in bytes, and a text that changes with the file."""
    info = ask(path, lambda files, name: files.info(name))
    if info["type"] != "file" or not isinstance(info.get("size"), int):
        raise ValueError(
            f"{path!r} must be a file of a known size. Received: a {info['type']} of "
            f"{info.get('size')} bytes. Use a server that sends Content-Length and supports ranges"
        )
    return info["size"], next((str(info[key]) for key in STAMPS if info.get(key)), "")


def read_range(url: str, offset: int, length: int) -> bytes:
    """Reads some bytes of a file."""

    def read(files, name):
        data = files.cat_file(name, start=offset, end=offset + length) if length else b""
        if len(data) != length:
            raise OSError(f"{len(data)} bytes were received instead of {length}")
        return data

    return ask(url, read)


class ShardFiles:
    """The files of a data set. Remote ones are copied as long as there is room.

    Files without room are read in place, by byte ranges. Copies of other data sets are removed to
    make room, the least recently opened first.

    Args:
        shards: The shards.
        cache_gb: The room for copies, in 10^9 bytes.
    """

    def __init__(self, shards: Sequence[Shard], cache_gb: float):
        self.shards, self.room = shards, int(cache_gb * 10**9)
        home = pathlib.Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser()
        self.folder = home / "vit_keras" / "shards"  # for indexes too
        self.copies: dict[int, pathlib.Path] = {}  # those with room, by the number of a shard
        free = self.room
        for number, shard in enumerate(shards):
            if is_remote(shard.path) and shard.size <= free:
                free -= shard.size
                key = hashlib.sha256(repr(shard).encode()).hexdigest()[:32]
                name = shard.path.rpartition("/")[2][-80:]
                self.copies[number] = self.folder / "copies" / f"{key}-{name}"

    def read(self, number: int, offset: int, length: int) -> bytes:
        """Reads some bytes of a shard.

        Raises:
            ValueError: If the shard ends before these bytes.
            UnreachableError: If a server cannot be reached.
        """
        shard, elsewhere = self.shards[number], is_remote(self.shards[number].path)
        try:  # the copy may be missing, or removed for another data set
            path = self.copies.get(number, "") if elsewhere else shard.path
            with open(path, "rb", buffering=0) as file:  # each read opens the file anew
                file.seek(offset)
                data = file.read(length)
        except FileNotFoundError:
            if elsewhere:
                return read_range(shard.path, offset, length)
            raise
        if len(data) != length:
            raise shard.damaged(f"it ends at byte {offset + len(data)}")
        return data

    def path(self, number: int) -> str:
        """Returns a file with the content of a shard, which is copied first if necessary.

        Raises:
            ValueError: If there is no room for a copy, or if the content differs from
                `shards.json`.
            UnreachableError: If a server cannot be reached.
        """
        shard, copy = self.shards[number], self.copies.get(number)
        if not is_remote(shard.path):
            return shard.path
        if copy is None:
            raise ValueError(
                f"{shard.path!r} must be copied to be read by index, and data.shard_cache_gb "
                f"leaves no room for its {shard.size} bytes. Raise it, or pack the shards as tar "
                "or tfrecord, which can be read where they are"
            )
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            with exclusive_lock(f"{copy.parent}.lock"):
                if not copy.exists():  # another process may have copied it meanwhile
                    self._make_room(shard.size)
                    _copy(shard, copy)
        return str(copy)

    def copy_all(self) -> None:
        """Copies all shards for which there is room, and marks the copies as just opened."""
        for number in self.copies:
            path = self.path(number)
            with contextlib.suppress(OSError):  # the cache may be another user's
                os.utime(path)

    @contextlib.contextmanager
    def scanning(self, number: int) -> Iterator[str]:
        """Yields a file with the contents of a shard; an error in them names the shard."""
        shard = self.shards[number]
        with tempfile.TemporaryDirectory() as look:
            if not is_remote(shard.path) or number in self.copies:
                check_sha256(shard, path := self.path(number))
            else:
                _copy(shard, path := os.path.join(look, "shard"))
            try:
                yield path
            except (FileNotFoundError, ImportError, MemoryError, PermissionError):
                raise
            except Exception as error:  # file libraries raise their own errors
                check_arrived(path)
                raise shard.damaged(str(error) or type(error).__name__) from error

    def _make_room(self, size):
        """Removes copies of other data sets until `size` bytes fit."""
        files = {path: path.stat() for path in (self.folder / "copies").iterdir() if path.is_file()}
        total = size + sum(status.st_size for status in files.values())
        others = files.keys() - self.copies.values()
        for path in sorted(others, key=lambda path: files[path].st_mtime):
            if total > self.room:
                path.unlink()
                total -= files[path].st_size


def _copy(shard: Shard, path: str | os.PathLike) -> None:
    # fsspec's `filecache` would take an interrupted download for the whole file.
    read = lambda start: read_range(shard.path, start, min(CHUNK, shard.size - start))
    with replacing(path) as temporary:
        with open(temporary, "wb") as file:
            file.writelines(read_ahead(read, range(0, shard.size, CHUNK), CHUNKS))
        check_sha256(shard, temporary)


def check_sha256(shard: Shard, path: str) -> None:
    """Checks a file with a shard's content against the hash in `shards.json`, if any.

    Raises:
        ValueError: If they differ.
    """
    if shard.sha256 is not None and (actual := sha256(path)) != shard.sha256:
        raise shard.damaged(f"its SHA-256 is {actual}, but shards.json states {shard.sha256!r:.70}")
