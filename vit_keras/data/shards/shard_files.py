"""Reads shards where they are, or from copies of them on this machine."""

import contextlib
import hashlib
import os
import pathlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vit_keras.data.shards import remote
from vit_keras.data.shards.manifest import check_sha256
from vit_keras.data.shards.records import damaged
from vit_keras.file_lock import exclusive_lock
from vit_keras.files import replacing

GIGABYTE = 10**9
LOOK, LONGEST_LOOK = "look-", 86_400  # copies for one look, and the seconds that it may take


class Shard(NamedTuple):
    """A file that holds records.

    Attributes:
        path: Where it is: a path or a URL.
        size: Its bytes.
        stamp: What changes when the file does, such as the time of its last change.
        images: The number of pictures that `shards.json` says, if any.
        sha256: The SHA-256 that `shards.json` says, if any.
    """

    path: str
    size: int
    stamp: str
    images: int | None = None
    sha256: str | None = None


def cache_folder() -> pathlib.Path:
    """Returns the folder of indexes and copies."""
    home = pathlib.Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser()
    return home / "vit_keras" / "shards"


class ShardFiles:
    """The files of a data set. Those from elsewhere are copied, as far as there is room.

    What has no room is read where it is, byte range by byte range. The copies of other data sets
    make room, the least recently opened first.

    Args:
        shards: The shards.
        cache_gb: The room for copies, in 10^9 bytes.

    Attributes:
        failure: Why a file could not be reached; empty if all could. A run must then stop, since no
            other picture may stand in.
    """

    def __init__(self, shards: Sequence[Shard], cache_gb: float):
        self.shards, self.failure = shards, ""
        self.copies = [
            _copy_of(shard) if remote.is_remote(shard.path) else None for shard in shards
        ]
        self.room = int(cache_gb * GIGABYTE)
        for copy in filter(None, self.copies):
            with contextlib.suppress(OSError):
                os.utime(copy)  # it was opened now

    def read(self, number: int, offset: int, length: int) -> bytes:
        """Reads some bytes of a shard.

        Raises:
            ValueError: If the shard ends before.
            UnreachableError: If a server cannot be reached.
        """
        shard, copy = self.shards[number], self.copies[number]
        try:
            with open(copy or shard.path, "rb", buffering=0) as file:  # there may be thousands
                file.seek(offset)
                data = file.read(length)
        except FileNotFoundError:
            if copy is None:
                raise
            return self._noting(lambda: remote.read_range(shard.path, offset, length))
        if len(data) != length:
            raise damaged(shard.path, f"it ends at byte {offset + len(data)}")
        return data

    def path(self, number: int) -> str:
        """Returns a file that has the content of a shard, which is copied first if need be.

        Raises:
            ValueError: If there is no room for a copy, or if the content is not that which
                `shards.json` says.
            UnreachableError: If a server cannot be reached.
        """
        shard, copy = self.shards[number], self.copies[number]
        if copy is None:
            return shard.path
        if not self._noting(lambda: self._copied(number)):
            raise ValueError(
                f"{shard.path!r} must be copied to be read by index, and data.shard_cache_gb "
                f"leaves no room for its {shard.size} bytes. Raise it, or pack the shards as tar "
                "or tfrecord, which can be read where they are"
            )
        return str(copy)

    @contextlib.contextmanager
    def scanning(self, number: int) -> Iterator[str]:
        """Yields a file that has the content of a shard, for one look at all of it.

        Errors that name this file name the shard instead.
        """
        shard, copy = self.shards[number], self.copies[number]
        if copy is None:
            check_sha256(shard.path, shard.path, shard.sha256)
            yield shard.path
            return
        is_kept = self._copied(number)
        look = copy if is_kept else copy.with_name(f"{LOOK}{os.getpid()}-{copy.name}")
        try:
            if not is_kept:
                _download(shard, look)
            yield str(look)
        except ValueError as error:
            raise ValueError(str(error).replace(repr(str(look)), repr(shard.path))) from error
        finally:
            if not is_kept:
                look.unlink(missing_ok=True)

    def start_copying(self) -> None:
        """Copies in a thread what there is room for."""
        missing = [i for i, copy in enumerate(self.copies) if copy and not copy.exists()]
        if missing and self.room:
            threading.Thread(target=self._copy_all, args=(missing,), daemon=True).start()

    def _copy_all(self, numbers):
        with contextlib.suppress(OSError, ValueError):  # what is not copied is read where it is
            for number in numbers:
                self._copied(number)

    def _noting(self, function):
        try:
            return function()
        except remote.UnreachableError as error:
            self.failure = str(error)
            raise

    def _copied(self, number) -> bool:
        """Whether there is a copy of a shard, which is made if there is room."""
        shard, copy = self.shards[number], self.copies[number]
        if copy.exists():
            return True
        copy.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(copy.parent / "copying.lock", lambda: None):
            if not copy.exists() and self._make_room(copy.parent, shard.size):
                _download(shard, copy)
            return copy.exists()

    def _make_room(self, folder, size) -> bool:
        """Removes copies of other data sets until `size` bytes fit; returns whether they do."""
        files = [path for path in folder.iterdir() if path.is_file() and not _is_in_use(path)]
        sizes = {path: path.stat().st_size for path in files}
        mine = set(self.copies)
        if size + sum(sizes[path] for path in files if path in mine) > self.room:
            return False
        others = [path for path in files if path not in mine]
        for path in sorted(others, key=lambda path: path.stat().st_mtime):
            if size + sum(sizes.values()) <= self.room:
                break
            path.unlink(missing_ok=True)
            del sizes[path]
        return True


def _is_in_use(path):
    """Whether a file beside the copies is a lock, or is being looked at by a process."""
    if not path.name.startswith(LOOK):
        return path.suffix == ".lock"
    try:
        return time.time() - path.stat().st_mtime < LONGEST_LOOK
    except FileNotFoundError:  # the look ended meanwhile
        return True


def _copy_of(shard: Shard) -> pathlib.Path:
    key = hashlib.sha256("\n".join(map(str, shard)).encode()).hexdigest()[:32]
    return cache_folder() / "copies" / f"{key}-{shard.path.rpartition('/')[2][-80:]}"


def _download(shard: Shard, path: pathlib.Path) -> None:
    with replacing(path) as temporary:
        with open(temporary, "wb") as file:
            for chunk in remote.read_chunks(shard.path, shard.size):
                file.write(chunk)
        check_sha256(shard.path, temporary, shard.sha256)
