"""Locks between processes, for files and folders that two of them may write at once."""

import contextlib
import errno
import os
import pathlib
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from typing import IO

from vit_keras.disk_errors import naming

LOCK = ".lock"
ATTEMPTS = 100  # to lock a file that others make and remove meanwhile


@contextlib.contextmanager
def exclusive_lock(path, on_wait):
    """Holds the lock of the file at `path` for the `with` statement.

    The kernel locks the open file. Such a lock ends with its process, however that ends, so no lock
    is ever stale. The empty file stays behind: if it were removed, one process could lock a new
    file of the same name while another still waits for the old one, and both would go on.

    Args:
        path: The lock file, which is made if need be.
        on_wait: Called once if another process holds the lock.

    Raises:
        OSError: If the file system has no locks.
    """
    with open(path, "ab") as file:
        try:
            _lock(file, blocking=False)
        except BlockingIOError:
            on_wait()
            _lock(file, blocking=True)
        except OSError as error:
            raise OSError(
                f"{path!r} cannot be locked: {error}. Set KERAS_HOME to a folder on a file system "
                "that has locks, such as a local disk."
            ) from error
        try:
            yield
        finally:
            _unlock(file)


@contextlib.contextmanager
def claimed(folder: pathlib.Path, purpose: str, remedy: str) -> Iterator[None]:
    """Keeps a folder for this process for the `with` statement.

    The file `.lock` in it says which process has it. It stays behind, without a lock.

    Args:
        folder: The folder, which is made if need be.
        purpose: What this process does there, such as "training".
        remedy: What another process is told to do.

    Raises:
        ValueError: Another process has the folder; the message says which.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "a+", encoding="utf-8") as file:
        try:
            _lock(file, blocking=False)
        except BlockingIOError as error:
            raise _in_use(folder, file, remedy) from error
        except OSError as error:  # some network file systems have no locks
            warnings.warn(f"{str(folder)!r} cannot be locked ({error})", stacklevel=3)
            yield
            return
        try:
            _sign(file, purpose)
            yield
        finally:
            _unlock(file)


@contextlib.contextmanager
def claimed_output(
    path: str | os.PathLike, purpose: str, remedy: str = "Wait until it ends, or give another --out"
) -> Iterator[None]:
    """Keeps the name of a file or folder that will be written, for the `with` statement.

    The file `.NAME.lock` beside it says which process has it, and is removed at the end.

    Args:
        path: The file or folder. Missing parents are made.
        purpose: What this process does, such as "an export".
        remedy: What another process is told to do.

    Raises:
        ValueError: Another process has the name; the message says which.
        OSError: The folder of `path` cannot be written.
    """
    path = pathlib.Path(path).absolute()
    lock = path.with_name(f".{path.name}{LOCK}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        file = hold(lock, path)
    except NoLocksError as error:
        warnings.warn(f"{str(path)!r} cannot be locked ({error})", stacklevel=3)
        yield
        return
    if file is None:
        with open(lock, "a+", encoding="utf-8") as held:
            raise _in_use(path, held, remedy)
    try:
        _sign(file, purpose)
        yield
    finally:
        release(file)


class NoLocksError(OSError):
    """A file system has no locks."""


def hold(path: str | os.PathLike, owner: str | os.PathLike | None = None) -> IO[str] | None:
    """Locks a file that exists while a process has it: one that was killed leaves it unlocked.

    Args:
        path: The file, which is made if need be.
        owner: What it is locked for, which errors name.

    Returns:
        The open file, for `release`; None if another process, or another part of this one, has it.

    Raises:
        NoLocksError: The file system has no locks.
        OSError: The file cannot be made.
    """
    for _ in range(ATTEMPTS):
        with naming(owner or path, path):
            file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - `release` closes it
        try:
            _lock(file, blocking=False)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        except FileNotFoundError:  # its owner removed it in between: what was locked is gone
            pass
        except BlockingIOError:
            file.close()
            return None
        except OSError as error:
            file.close()
            with contextlib.suppress(OSError):
                os.remove(path)
            raise NoLocksError(error.errno, error.strerror, os.fspath(path)) from error
        file.close()
    raise NoLocksError(errno.ENOLCK, "files change their identity", os.fspath(path))


def release(file: IO[str]) -> None:
    """Ends what `hold` began: removes the file and its lock."""
    if sys.platform != "win32":  # there, an open file cannot be removed
        _remove(file.name)
    with contextlib.suppress(OSError), file:  # the end of the process would end the lock as well
        _unlock(file)
    if sys.platform == "win32":
        _remove(file.name)


def _remove(path):
    with contextlib.suppress(OSError):  # an unlocked file is no lock
        os.remove(path)


def _sign(file, purpose):
    """Writes into a lock file which process has it."""
    process = f"process {os.getpid()} on {socket.gethostname()}"
    with contextlib.suppress(OSError):  # a full disk is told by what is written next
        os.ftruncate(file.fileno(), 0)
        text = f"{purpose} by {process} since {time.strftime('%Y-%m-%d %H:%M:%S')}"
        os.write(file.fileno(), text.encode())


def _in_use(path, file, remedy):
    return ValueError(f"{str(path)!r} is in use: {_owner(file)}. {remedy}")


def _owner(file):
    """What the process that holds the lock wrote, as far as it can be read."""
    with contextlib.suppress(OSError):  # Windows lets no other process read what is locked
        file.seek(0)
        return file.read().strip() or "another process has it"
    return "another process has it"


if sys.platform != "win32":
    import fcntl

    def _lock(file, blocking):
        fcntl.flock(file, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))

    def _unlock(file):
        fcntl.flock(file, fcntl.LOCK_UN)

else:
    import msvcrt

    def _lock(file, blocking):
        while True:
            file.seek(0)
            try:
                return msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            except OSError as error:
                if not blocking:
                    raise BlockingIOError(str(error)) from error
                time.sleep(0.2)

    def _unlock(file):
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
