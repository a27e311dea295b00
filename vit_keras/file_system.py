"""What `files` does with names: renames, swaps, links and flushes, as each system can."""

import ctypes
import os
import pathlib
import shutil

Path = str | os.PathLike
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux' renameat2


def rename(source: Path, target: Path) -> None:
    """Renames; `target` may exist. A rename that a network file system did twice is done."""
    before = os.stat(source)
    try:
        os.replace(source, target)
    except FileNotFoundError:  # the answer was lost, and the second request found it done
        if not (os.path.exists(target) and os.path.samestat(os.stat(target), before)):
            raise


def link_missing(folder: pathlib.Path, new: pathlib.Path, but: str) -> None:
    """Puts what `new` lacks of `folder` into it, by links where the file system has them.

    Names that begin with `but` are left out.
    """
    for path in folder.iterdir():
        if (new / path.name).exists() or path.name.startswith(but):
            continue
        if path.is_dir():
            shutil.copytree(path, new / path.name, symlinks=True, copy_function=_link)
        else:
            _link(path, new / path.name)


def _link(path, new):
    try:
        os.link(path, new, follow_symlinks=False)
    except OSError:
        shutil.copy2(path, new, follow_symlinks=False)


def exchange(one: Path, other: Path) -> bool:
    """Swaps two names in one step where the system can; returns whether it did."""
    try:
        swap = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # another system than Linux
        return False
    names = os.fsencode(one), os.fsencode(other)
    return swap(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0


def flush(path: Path) -> None:
    """Writes a file or a folder's names to the disk."""
    if os.name == "nt" and os.path.isdir(path):
        return  # Windows cannot open a folder
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
