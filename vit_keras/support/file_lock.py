"""Locks between processes, for files and folders that two of them may write at once.

The kernel locks an open file, through `filelock`. The lock ends with its process, however that
ends, so locks are never stale. The lock file is removed at the end, but a killed process leaves it.
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
        path: The lock file, which is made if necessary.
        on_wait: A function to call once if another process, or other code in this one, holds the
            lock. An error that it raises ends the wait.

    Raises:
        OSError: If the lock file cannot be made, or the file system has no locks.
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
            with contextlib.suppress(OSError):  # Windows cannot remove an open file
                os.remove(path)


def claimed(
    folder: pathlib.Path, purpose: str, remedy: str
) -> contextlib.AbstractContextManager[None]:
    """Reserves a folder for this process, in a `with` statement.

    The file `.lock` in the folder names the process.

    Args:
        folder: The folder, which is made if necessary.
        purpose: The activity of this process there, such as "training".
        remedy: Advice for another process's user.

    Raises:
        ValueError: If another process has the folder; the message names it.
    """
    return _claimed(folder, folder / LOCK, purpose, remedy)


def claimed_output(
    path: str | os.PathLike, purpose: str, remedy: str = "Wait until it ends, or give another --out"
) -> contextlib.AbstractContextManager[None]:
    """Reserves the name of a file or folder that will be written, in a `with` statement.

    The file `.NAME.lock` beside it names the process.

    Args:
        path: The file or folder. Missing parents are made.
        purpose: The activity of this process, such as "an export".
        remedy: Advice for another process's user.

    Raises:
        ValueError: If another process has the name; the message names it.
        OSError: If the folder of `path` cannot be written.
    """
    path = pathlib.Path(path).absolute()
    return _claimed(path, path.with_name(f".{path.name}{LOCK}"), purpose, remedy)


@contextlib.contextmanager
def _claimed(place, lock, purpose, remedy):
    def refuse():
        owner = "another process has it"
        with contextlib.suppress(OSError):  # on Windows, other processes cannot read a locked file
            owner = lock.read_text("utf-8") or owner
        raise ValueError(f"{str(place)!r} is in use: {owner}. {remedy}")

    lock.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(lock, refuse):
        process = f"process {os.getpid()} on {socket.gethostname()}"
        signed = f"{purpose} by {process} since {time.strftime('%Y-%m-%d %H:%M:%S')}"
        with contextlib.suppress(OSError):  # the next write reports a full disk
            lock.write_text(signed, "utf-8")
        yield
