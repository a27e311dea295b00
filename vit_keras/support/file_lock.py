"""Locks between processes, for files and folders that two of them may write at once.

The kernel locks an open file, through `filelock`. Such a lock ends with its process, however that
ends, so no lock is ever stale. The lock file is removed at the end; a killed process leaves it.
"""

import contextlib
import errno
import os
import pathlib
import socket
import time
from collections.abc import Callable, Iterator

LOCK = ".lock"
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextlib.contextmanager
def exclusive_lock(path: str | os.PathLike, on_wait: Callable[[], None]) -> Iterator[None]:
    """Holds the lock of the file at `path` for the `with` statement.

    Args:
        path: The lock file, which is made if need be.
        on_wait: Called once if another process, or another part of this one, holds the lock. An
            error that it raises ends the waiting.

    Raises:
        OSError: The lock file cannot be made, or the file system has no locks.
    """
    import filelock

    lock = filelock.FileLock(path, thread_local=False, fallback_to_soft=False)
    try:
        try:
            held = lock.acquire(blocking=False)
        except filelock.Timeout:
            on_wait()
            held = lock.acquire()
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise OSError(
            f"{os.fspath(path)!r} cannot be locked: {error}. Use a folder on a file system that "
            "has locks, such as a local disk; KERAS_HOME sets the folder of the cache"
        ) from error
    with held:
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # Windows removes no open file
                os.remove(path)


def claimed(
    folder: pathlib.Path, purpose: str, remedy: str
) -> contextlib.AbstractContextManager[None]:
    """Keeps a folder for this process, in a `with` statement.

    The file `.lock` in it says which process has it.

    Args:
        folder: The folder, which is made if need be.
        purpose: What this process does there, such as "training".
        remedy: What another process is told to do.

    Raises:
        ValueError: Another process has the folder; the message says which.
    """
    return _claimed(folder, folder / LOCK, purpose, remedy)


def claimed_output(
    path: str | os.PathLike, purpose: str, remedy: str = "Wait until it ends, or give another --out"
) -> contextlib.AbstractContextManager[None]:
    """Keeps the name of a file or folder that will be written, in a `with` statement.

    The file `.NAME.lock` beside it says which process has it.

    Args:
        path: The file or folder. Missing parents are made.
        purpose: What this process does, such as "an export".
        remedy: What another process is told to do.

    Raises:
        ValueError: Another process has the name; the message says which.
        OSError: The folder of `path` cannot be written.
    """
    path = pathlib.Path(path).absolute()
    return _claimed(path, path.with_name(f".{path.name}{LOCK}"), purpose, remedy)


@contextlib.contextmanager
def _claimed(place, lock, purpose, remedy):
    def refuse():
        owner = "another process has it"
        with contextlib.suppress(OSError):  # Windows lets no other process read what is locked
            owner = lock.read_text("utf-8") or owner
        raise ValueError(f"{str(place)!r} is in use: {owner}. {remedy}")

    lock.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(lock, refuse):
        process = f"process {os.getpid()} on {socket.gethostname()}"
        signed = f"{purpose} by {process} since {time.strftime('%Y-%m-%d %H:%M:%S')}"
        with contextlib.suppress(OSError):  # a full disk is told by what is written next
            lock.write_text(signed, "utf-8")
        yield
