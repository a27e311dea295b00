"""Finds the picture files that a command's arguments name."""

import collections
import fnmatch
import functools
import glob
import os
import pathlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

from vit_keras.data.picture_files import SUFFIXES

JUNK = {  # what systems and network drives leave among pictures, in lower case
    *("__macosx", "icon\r", "network trash folder", "temporary items", "thevolumesettingsfolder"),
    *("thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "picasa.ini"),
    *("$recycle.bin", "system volume information", "lost+found", "__pycache__"),
    *("@eadir", "@tmp", "@sharebin", "#recycle", "#snapshot", "~snapshot"),
    *("@recycle", "@recently-snapshot", "@__thumb", "zbthumbnail.info"),
}
JUNK_ENDINGS = ("@synoeastream", "@synoresource")

Seen = set[tuple[int, int]]  # the device and inode numbers of folders


def expand_pictures(arguments: Iterable[str | os.PathLike]) -> list[pathlib.Path]:
    """Expands files, folders, and glob patterns into the paths of pictures.

    A file is kept, whatever its suffix. A folder stands for all pictures in it and in its
    subfolders, and a pattern such as `photos/**/*.jpg` for the pictures and folders that it
    matches. Hidden files and system files, such as `__MACOSX`, are left out. Links to
    folders are followed, but not to a folder above, and each folder is read once.

    Args:
        arguments: Paths and patterns.

    Returns:
        Each picture once: the arguments in order; a folder's own pictures, sorted by name, come
        before those of its subfolders.

    Raises:
        FileNotFoundError: If an argument is not a file, a folder, or a pattern.
        PermissionError: If a folder cannot be read.
        ValueError: If a folder contains no pictures, or if no picture matches a pattern.

    Example:
        ```python
        paths = data.expand_pictures(["cat.jpg", "photos", "holidays/2024-*/*.png"])
        ```
    """
    paths: dict[pathlib.Path, None] = {}  # ordered, and each path once
    for argument in arguments:
        paths |= dict.fromkeys(map(pathlib.Path, expand_argument(os.fspath(argument))))
    return list(paths)


def expand_argument(argument: str) -> list[str]:
    """Returns the paths that one argument of `expand_pictures` stands for, in the same order.

    Raises:
        FileNotFoundError, PermissionError, ValueError: As for `expand_pictures`.
    """
    path = pathlib.Path(argument)
    if path.is_file():
        return [str(path)]
    is_pattern = glob.has_magic(argument) and not path.is_dir()
    pictures = [*(_matching(path.parts) if is_pattern else pictures_in(str(path)))]
    if not pictures:
        raise ValueError(
            f"A folder or a pattern must lead to pictures ({', '.join(SUFFIXES)}). Received: "
            f"{argument!r}, which leads to none"
        )
    return pictures


def pictures_in(folder: str, seen: Seen | None = None) -> Iterator[str]:
    """Yields the pictures in a folder and its subfolders; those of each folder sorted by name."""
    for place, names in walk_once(folder, seen):
        yield from (os.path.join(place, name) for name in names if is_picture(name))


def _matching(names) -> Iterator[str]:
    """Yields the pictures that a pattern's names match, and those in the folders they match."""
    seen: Seen = set()
    for match in sorted({*_matches(os.curdir, names)}):
        if os.path.isdir(match):
            yield from pictures_in(match, seen)
        elif is_picture(os.path.basename(match)):
            yield match


def _matches(folder, names) -> Iterator[str]:
    """Yields the files and folders below `folder` that match the `names` of a pattern."""
    if not names:
        yield folder
        return
    first, *rest = names
    if first == "**":
        for place, _ in walk_once(folder):
            yield from _matches(place, rest)
    elif os.path.lexists(path := os.path.join(folder, first)):  # whatever characters its name has
        yield from _matches(path, rest)
    elif os.path.isdir(folder):
        for entry in os.scandir(folder):
            takes = is_folder(entry) or not (rest or os.path.isdir(entry))
            if takes and not is_junk(entry.name) and fnmatch.fnmatch(entry.name, first):
                yield from _matches(entry.path, rest)


def walk_once(top: str, seen: Seen | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yields each folder from `top` down, and the names of its files, without junk.

    A folder with several links to it is yielded once, so links to their own parents cause no loop.

    Args:
        top: The first folder.
        seen: The folders to leave out, to which the visited ones are added.

    Raises:
        PermissionError: If a folder cannot be read. The message names it.
    """
    seen = set() if seen is None else seen
    for folder, folders, files in os.walk(top, onerror=_raise, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        below = (name for name in folders if not is_junk(name))
        folders[:] = sorted(name for name in below if is_folder(pathlib.Path(folder, name)))
        yield folder, sorted(name for name in files if not is_junk(name))


def _raise(error):
    raise error


def is_folder(entry: os.DirEntry | pathlib.Path) -> bool:
    """Whether an entry is a folder, or a link to one that is not above the link.

    Raises:
        PermissionError: If a link leads to a place that this user may not read.
    """
    if not entry.is_symlink():
        return entry.is_dir()
    place = pathlib.Path(entry)
    return place.is_dir() and not place.parent.resolve().is_relative_to(place.resolve())


def is_junk(name: str) -> bool:
    """Whether a file or folder of this name is hidden or a system file, such as `__MACOSX`."""
    name = name.lower()
    return name.startswith((".", "~$")) or name in JUNK or name.endswith(JUNK_ENDINGS)


def is_picture(name: str) -> bool:
    """Whether a file of this name is a picture and not junk."""
    return os.path.splitext(name)[1].lower() in SUFFIXES and not is_junk(name)


class PictureFiles:
    """The pictures below a folder, found by paths that may be spelled differently.

    Args:
        root: The folder.
    """

    def __init__(self, root: str):
        self.root = root
        self.ending = functools.cache(self._ending)

    @functools.cached_property
    def known(self) -> dict[tuple[str, ...], list[str]]:
        """Each picture below the root, by the parts of its path with and without a suffix."""
        known = collections.defaultdict(list)
        for picture in pictures_in(self.root):
            path = os.path.relpath(picture, self.root)
            *above, last = self._parts(path)
            for key in {last, os.path.splitext(last)[0]}:
                known[*above, key].append(path)
        return known

    def _ending(self, length: int) -> dict[tuple[str, ...], list[str]]:
        """Pictures in deeper folders, by the last `length` parts of their paths."""
        ending: dict[tuple[str, ...], list[str]] = collections.defaultdict(list)
        for steps, paths in self.known.items():
            if len(steps) > length:
                ending[steps[-length:]] += paths
        return ending

    @staticmethod
    def _parts(path):
        composed = unicodedata.normalize("NFC", path)
        return [p.strip().casefold() for p in re.split(r"[\\/]+", composed) if p not in ("", ".")]

    def find(self, cell: Any) -> list[str]:
        """Returns the pictures that a cell may mean, relative to the root: one, unless ambiguous.

        A file fits if its path ends with the cell's path, or the other way around.
        """
        path = str(cell)
        if path and os.path.isfile(os.path.join(self.root, path)):
            return [path]
        sought = tuple(self._parts(path))
        if not sought:
            return []
        deeper = () if sought in self.known else self.ending(len(sought)).get(sought, ())
        tails = (sought[i:] for i in range(len(sought)))
        return [*deeper] or next((self.known[t] for t in tails if t in self.known), [])
