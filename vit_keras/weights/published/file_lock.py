"""A lock between processes, for files that two of them may want to write at once."""

import contextlib
import time


@contextlib.contextmanager
def exclusive_lock(path, on_wait):
    """Holds the lock of the file at `path`; calls `on_wait` once where another holds it already.

    The kernel's lock on an open file, not the mere existence of a file: it ends with the process
    that holds it, however that ends, so no lock is ever stale and no age has to be guessed at which
    one would be. The file stays behind, empty: if it were removed, one process could lock a new
    file of this name while another still waits for the old one, and both would go on.
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


try:
    import fcntl

    def _lock(file, blocking):
        fcntl.flock(file, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))

    def _unlock(file):
        fcntl.flock(file, fcntl.LOCK_UN)

except ImportError:  # Windows
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
