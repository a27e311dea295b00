"""Finds the picture files that a command's arguments name."""

import glob
import os
import pathlib
from collections.abc import Iterable, Iterator

from vit_keras.data.pillow_images import SUFFIXES


def expand_pictures(arguments: Iterable[str | os.PathLike]) -> list[pathlib.Path]:
    """Expands files, folders, and glob patterns into the paths of pictures.

    A file is kept as it is, whatever its suffix. A folder stands for all pictures in it and in its
    subfolders, and a pattern such as `photos/**/*.jpg` for the pictures and folders that it
    matches. Hidden files and folders are left out.

    Args:
        arguments: Paths and patterns.

    Returns:
        Each picture once: the arguments in their order, the contents of each sorted by path.

    Raises:
        FileNotFoundError: If an argument is neither a file, a folder, nor a pattern.
        ValueError: If a folder holds no pictures, or if no picture matches a pattern.

    Example:
        ```python
        paths = data.expand_pictures(["cat.jpg", "photos", "holidays/2024-*/*.png"])
        ```
    """
    paths: dict[pathlib.Path, None] = {}  # ordered, and each path once
    for argument in arguments:
        paths |= dict.fromkeys(map(pathlib.Path, expand_argument(os.fspath(argument))))
    return list(paths)


def expand_argument(argument: str) -> Iterator[str]:
    """Yields the paths that one argument of `expand_pictures` stands for, in the same order.

    Memory grows with the number of names in the largest folder, not with the number of pictures.

    Raises:
        FileNotFoundError, ValueError: As `expand_pictures` does, once no path has come.
    """
    path, kinds = pathlib.Path(argument), ", ".join(SUFFIXES)
    if path.is_file():
        yield str(path)
    elif path.is_dir():
        pictures = _pictures_in(str(path))
        first = next(pictures, None)
        if first is None:
            raise ValueError(
                f"A folder of pictures must hold {kinds} files. Received: {argument!r}, with none"
            )
        yield first
        yield from pictures
    else:
        yield from _matching(argument, kinds)


def _matching(argument, kinds):
    if not glob.has_magic(argument):
        raise FileNotFoundError(f"There is no picture and no folder at {argument!r}.")
    matches = [str(pathlib.Path(match)) for match in sorted(glob.glob(argument, recursive=True))]
    pictures = [
        picture
        for match in matches
        for picture in (_pictures_in(match) if os.path.isdir(match) else [match])
        if _is_picture(os.path.basename(picture))
    ]
    if not pictures:
        raise ValueError(
            f"A pattern must match pictures ({kinds}). Received: {argument!r}, which matches none"
        )
    return pictures


def _pictures_in(folder: str) -> Iterator[str]:
    """Yields the pictures in a folder and its subfolders, sorted by the parts of their paths."""
    try:
        with os.scandir(folder) as entries:
            kinds = {entry.name: is_folder(entry) for entry in entries if _is_shown(entry)}
    except OSError:  # as `os.walk`, which leaves out what it may not list
        return
    for name in sorted(kinds):
        path = name if folder == os.curdir else os.path.join(folder, name)
        if kinds[name]:
            yield from _pictures_in(path)
        else:
            yield path


def walk_once(top: str) -> Iterator[tuple[str, list[str]]]:
    """Yields each folder below `top` and the names of its files, also of folders that are linked.

    A folder that several links lead to comes once, so that links to folders above them end.
    Whatever is no file, such as a pipe, is left out; a link that leads nowhere stays.
    """
    seen, waiting = set(), [top]
    while waiting:
        folder = waiting.pop()
        try:
            status = os.stat(folder)
            with os.scandir(folder) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except OSError:  # as `os.walk`, which leaves out what it may not list
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        folders = [entry.path for entry in inside if is_folder(entry)]
        waiting.extend(reversed(folders))
        yield folder, [e.name for e in inside if e.path not in set(folders) and _may_be_file(e)]


def is_folder(entry: os.DirEntry) -> bool:
    """Whether a directory's entry is a folder or leads to one; a link in a circle does not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _may_be_file(entry):
    """Whether a directory's entry is a file, or a link that leads nowhere."""
    try:
        return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))
    except OSError:
        return True


def _is_shown(entry):
    if is_folder(entry):
        return not entry.name.startswith(".") and not entry.is_symlink()
    return _is_picture(entry.name)


def _is_picture(name):
    return os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")
