"""Files and folders that are replaced in one step: a reader sees the old one or the new one.

Everything is written under a temporary name beside its place, flushed to the disk, and renamed.
"""

import contextlib
import hashlib
import os
import pathlib
import shutil
import uuid
from collections.abc import Iterator

PARTIAL = ".partial-"  # begins the name of a folder that is incomplete or no longer needed
COMPLETE = ".new-"  # begins the name of a complete folder that is about to replace another


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[str]:
    """Yields a temporary file name beside `path`; the file written there replaces `path` on exit.

    The temporary name ends like `path`, so that writers which look at the suffix work. After an
    error, `path` is as it was and the temporary file is removed.

    Example:
        with replacing("model.keras") as temporary:
            model.save(temporary)
    """
    parent, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(parent, f".{uuid.uuid4().hex}-{name}")
    try:
        yield temporary
        _flush(temporary)  # otherwise a power cut could leave the new name with an empty file
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


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


def sha256(path: str | os.PathLike) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def replacing_folder(folder: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a new folder beside `folder`, which takes the place of `folder` on exit.

    Missing parents are made. The old folder is removed only after the new one is in place. After
    an error, the old folder is as it was and the new one is removed. A process that is killed
    leaves the old folder, the new one, or, between two renames, the complete new one under
    another name: the next `replacing_folder` or `recover` puts that one in place.

    Raises:
        NotADirectoryError: `folder` is a file.

    Example:
        with replacing_folder("export") as new:
            (new / "labels.txt").write_text("cat")
    """
    folder = pathlib.Path(folder).absolute()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(
            f"`folder` must be a folder or a new name. Received: {str(folder)!r}, a file"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    _finish_replacement(folder)
    partial = _hidden(folder)
    try:
        partial.mkdir()
        yield partial
        for path in (*filter(pathlib.Path.is_file, sorted(partial.rglob("*"))), partial):
            _flush(path)
        _put_in_place(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _flush(folder.parent)


def remove_folder(folder: str | os.PathLike) -> None:
    """Deletes `folder` and what it holds; its name disappears first, so no part of it is seen."""
    hidden = _hidden(pathlib.Path(folder))
    os.replace(folder, hidden)
    shutil.rmtree(hidden)


def recover(parent: str | os.PathLike) -> None:
    """Finishes the replacements that a killed process left in `parent`, and removes its remains.

    Call it only while no other process writes folders in `parent`.
    """
    for complete in pathlib.Path(parent).glob(f"{COMPLETE}*"):
        _finish_replacement(complete.with_name(complete.name.removeprefix(COMPLETE)))
    for partial in pathlib.Path(parent).glob(f"{PARTIAL}*"):
        shutil.rmtree(partial)


def _hidden(folder):
    return folder.with_name(f"{PARTIAL}{uuid.uuid4().hex}-{folder.name}")


def _put_in_place(partial, folder):
    if not folder.exists():
        os.replace(partial, folder)
        return
    complete, old = folder.with_name(COMPLETE + folder.name), _hidden(folder)
    os.replace(partial, complete)
    try:
        os.replace(folder, old)
        os.replace(complete, folder)
    except BaseException:
        if old.exists():
            os.replace(old, folder)
        shutil.rmtree(complete)
        raise
    shutil.rmtree(old)


def _finish_replacement(folder):
    """Puts in place the complete new folder that a killed process left, if there is one."""
    complete = folder.with_name(COMPLETE + folder.name)
    if complete.exists():
        if folder.exists():
            remove_folder(folder)
        os.replace(complete, folder)


def _flush(path):
    if os.name == "nt" and os.path.isdir(path):
        return  # Windows cannot open a folder
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
