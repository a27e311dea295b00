"""Files and folders that are replaced in one step: a reader sees the old one or the new one.

Everything is written under a temporary name beside its place, flushed to the disk, and renamed. A
lock beside the temporary name says that its process lives; what others have left is removed by the
next replacement of the same name.
"""

import contextlib
import hashlib
import itertools
import os
import pathlib
import shutil
import uuid
from collections.abc import Iterator

from vit_keras import file_lock
from vit_keras.disk_errors import naming
from vit_keras.file_system import exchange, flush, link_missing, rename

PLACEHOLDERS = {  # by the first bytes, in small letters
    b"version https://git-lfs": "a pointer of Git LFS. Run `git lfs pull` in its folder",
    b"<!doctype html": "a web page. Download the file itself",
}

PARTIAL = ".partial-"  # begins the name of what is incomplete or no longer needed
COMPLETE = ".new-"  # begins the name of a complete folder that is about to replace another


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[str]:
    """Yields a temporary file name; the file written there replaces `path` on exit.

    The temporary file has the name of `path` and lies in a hidden folder beside it, where libraries
    may put temporary files of their own. After an error, `path` is as it was and the hidden folder
    is removed. What a killed process left is removed before, unless its process still lives.

    Raises:
        OSError: `path` is a folder, or the disk cannot hold the file. The error names `path`.

    Example:
        with replacing("model.keras") as temporary:
            model.save(temporary)
    """
    path = pathlib.Path(path).absolute()
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder, and no file. Delete or rename it")
    with _temporary(path) as folder, naming(path, folder):
        try:
            folder.mkdir()
            yield str(temporary := folder / path.name)
            flush(temporary)  # otherwise a power cut could leave the new name with an empty file
            rename(temporary, path)
        finally:
            _discard(folder)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes `text` in UTF-8 to `path`, which it replaces in one step."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


def read_text(path: str | os.PathLike, remedy: str) -> str:
    """Reads a file in UTF-8.

    Raises:
        ValueError: If it holds other bytes. The message ends with the `remedy`.
    """
    with open(path, encoding="utf-8") as file:
        try:
            return file.read()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{os.fspath(path)!r} is damaged (it is not UTF-8 from byte {error.start} on). "
                f"{remedy}"
            ) from error


def check_arrived(path: str | os.PathLike) -> None:
    """Checks that a file is not what a clone or a download leaves in place of large files.

    Raises:
        ValueError: If it is. The message names it, and says how to get the file.
    """
    with open(path, "rb") as file:
        head = file.read(32).lower()
    for first, what in PLACEHOLDERS.items():
        if head.startswith(first):
            raise ValueError(f"{os.fspath(path)!r} is {what}")


def sha256(path: str | os.PathLike) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def replacing_folder(folder: str | os.PathLike, keep: bool = False) -> Iterator[pathlib.Path]:
    """Yields a new folder beside `folder`, which takes the place of `folder` on exit.

    Missing parents are made. The old folder is removed only after the new one is in place. After
    an error, the old folder is as it was and the new one is removed. Linux swaps both in one step.
    Elsewhere, a process that is killed between two renames leaves the complete new folder under
    another name: the next `replacing_folder` or `recover` puts that one in place.

    Args:
        folder: The folder.
        keep: Whether files of the old folder stay that the block writes no successor of.

    Raises:
        NotADirectoryError: `folder` is a file.
        OSError: The disk cannot hold the folder. The error names `folder`.

    Example:
        with replacing_folder("export") as new:
            (new / "labels.txt").write_text("cat")
    """
    folder = pathlib.Path(os.path.realpath(folder))  # a link to a folder stays
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(
            f"`folder` must be a folder or a new name. Received: {str(folder)!r}, a file to delete"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    _finish_replacement(folder)
    with _temporary(folder) as partial, naming(folder, partial):
        try:
            partial.mkdir()
            yield partial
            if keep and folder.exists():
                link_missing(folder, partial, but=PARTIAL)
            for path in (*filter(pathlib.Path.is_file, sorted(partial.rglob("*"))), partial):
                flush(path)
            _put_in_place(partial, folder)
        finally:
            _discard(partial)
        flush(folder.parent)


def remove_folder(folder: str | os.PathLike) -> None:
    """Deletes `folder` and what it holds; its name disappears first, so no part of it is seen.

    What another process has open may stay under a hidden name, for `recover`.
    """
    folder = pathlib.Path(folder).absolute()
    with _temporary(folder) as hidden, naming(folder, hidden):
        rename(folder, hidden)
        _discard(hidden)


def remove_remains(path: str | os.PathLike) -> None:
    """Removes what killed processes left of writing or removing `path`, as far as possible."""
    with contextlib.suppress(OSError), _temporary(pathlib.Path(path).absolute()):
        pass


def recover(parent: str | os.PathLike) -> None:
    """Finishes the replacements that a killed process left in `parent`, and removes its remains.

    What a living process is writing there stays, if the file system has locks.
    """
    for complete in pathlib.Path(parent).glob(f"{COMPLETE}*"):
        _finish_replacement(complete.with_name(complete.name.removeprefix(COMPLETE)))
    remains = pathlib.Path(parent).glob(f"{PARTIAL}*")
    for partial in {path.with_name(path.name.removesuffix(file_lock.LOCK)) for path in remains}:
        _remove_remains(partial)


@contextlib.contextmanager
def _temporary(path):
    """Yields a name beside `path` that no other process uses, and keeps it by a lock."""
    named = lambda number: path.with_name(f"{PARTIAL}{number}-{path.name}")
    try:
        number, lock = next(
            (number, lock)
            for number in itertools.count()
            if (lock := file_lock.hold(_lock_of(named(number)), path))
        )
    except file_lock.NoLocksError:
        yield named(uuid.uuid4().hex)
        return
    try:
        _discard(temporary := named(number))
        for other in map(named, itertools.count(number + 1)):  # of others that were killed
            if not (other.exists() or _lock_of(other).exists()):
                break
            _remove_remains(other)
        yield temporary
    finally:
        file_lock.release(lock)


def _remove_remains(partial):
    """Removes an incomplete file or folder, unless the process that writes it lives."""
    try:
        lock = file_lock.hold(_lock_of(partial))
    except file_lock.NoLocksError:
        _discard(partial)  # nobody knows; `recover` asks its callers to
    except OSError:
        pass  # such as in a folder that cannot be written
    else:
        if lock is not None:
            _discard(partial)
            file_lock.release(lock)


def _lock_of(temporary):
    return temporary.with_name(temporary.name + file_lock.LOCK)


def _discard(path):
    """Removes a file or a folder, as far as that is possible: nothing depends on it."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.lexists(path):
            os.remove(path)


def _put_in_place(partial, folder):
    if not folder.exists():
        rename(partial, folder)
    elif not exchange(partial, folder):
        complete = folder.with_name(COMPLETE + folder.name)
        rename(partial, complete)
        try:
            rename(folder, partial)
            rename(complete, folder)
        except BaseException:
            if not folder.exists():
                rename(partial, folder)
            _discard(complete)
            raise


def _finish_replacement(folder):
    """Puts in place the complete new folder that a killed process left, if there is one."""
    complete = folder.with_name(COMPLETE + folder.name)
    if complete.exists():
        if folder.exists():
            remove_folder(folder)
        rename(complete, folder)
