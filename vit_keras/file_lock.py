"""Locks between processes, for files and folders that two of them may write at once."""

import contextlib
import os
import pathlib
import socket
import sys
import time
import warnings

LOCK = ".lock"


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
def claimed(folder: pathlib.Path, purpose: str, remedy: str):
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
            raise ValueError(f"{str(folder)!r} is in use: {_owner(file)}. {remedy}") from error
        except OSError as error:  # some network file systems have no locks
            warnings.warn(f"{str(folder)!r} cannot be locked ({error})", stacklevel=3)
            yield
            return
        try:
            file.truncate(0)
            process = f"process {os.getpid()} on {socket.gethostname()}"
            file.write(f"{purpose} by {process} since {time.strftime('%Y-%m-%d %H:%M:%S')}")
            file.flush()
            yield
        finally:
            _unlock(file)


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
