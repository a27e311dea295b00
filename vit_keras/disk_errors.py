"""Errors of a disk, told with the name of the file that the user knows."""

import contextlib
import errno
import os
from collections.abc import Iterator

# What a disk or its file system answers, whatever is written. Libraries in C and Rust pass on the
# text of the system alone, in exceptions of their own.
CAUSES = tuple(
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS", "ESTALE", "EINTR", "ENOLCK")
    if hasattr(errno, name)
)


@contextlib.contextmanager
def naming(path: str | os.PathLike, *temporaries: str | os.PathLike) -> Iterator[None]:
    """Turns what the block raises because of the disk into an OSError that names `path`.

    Errors of other files, and others than the disk's, pass unchanged.

    Args:
        path: The file or folder that the block writes.
        temporaries: The names under which the block writes it.

    Raises:
        OSError: With `path`, the number and the text of the cause, such as "No space left on
            device".
    """
    try:
        yield
    except Exception as error:
        hidden = tuple(os.fspath(name) for name in temporaries)
        if (cause := _cause(error, os.fspath(path), hidden)) is None:
            raise
        raise OSError(cause, os.strerror(cause), os.fspath(path)) from error


def _cause(error, path, hidden):
    """The number of the disk's error that `error` tells of; None if it tells of something else."""
    if isinstance(error, OSError) and error.errno is not None:
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        if not names:
            return error.errno if error.errno in CAUSES else None
        is_hidden = any(name.startswith(hidden) for name in names)
        return error.errno if is_hidden or names == [os.path.dirname(path)] else None
    text = str(error)
    return next((number for number in CAUSES if os.strerror(number) in text), None)
