"""Finds the picture files that a command's arguments name."""

import glob
import os
import pathlib
from collections.abc import Iterable

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
        paths |= dict.fromkeys(_expand(os.fspath(argument)))
    return list(paths)


def _expand(argument):
    path, kinds = pathlib.Path(argument), ", ".join(SUFFIXES)
    if path.is_file():
        return [path]
    if path.is_dir():
        pictures = _pictures_in(path)
        if not pictures:
            raise ValueError(
                f"A folder of pictures must hold {kinds} files. Received: {argument!r}, with none"
            )
        return pictures
    if not glob.has_magic(argument):
        raise FileNotFoundError(f"There is no picture and no folder at {argument!r}.")
    matches = map(pathlib.Path, sorted(glob.glob(argument, recursive=True)))
    pictures = [p for match in matches for p in (_pictures_in(match) or [match]) if _is_picture(p)]
    if not pictures:
        raise ValueError(
            f"A pattern must match pictures ({kinds}). Received: {argument!r}, which matches none"
        )
    return pictures


def _pictures_in(folder):
    pictures = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        pictures += [pathlib.Path(place, name) for name in files]
    return sorted(path for path in pictures if _is_picture(path))


def _is_picture(path):
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
