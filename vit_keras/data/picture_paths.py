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

from vit_keras.data.pillow_images import SUFFIXES

JUNK = {  # what systems and network drives leave among pictures, in lower case
    *("__macosx", "icon\r", "network trash folder", "temporary items", "thevolumesettingsfolder"),
    *("thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "picasa.ini"),
    *("$recycle.bin", "system volume information", "lost+found", "__pycache__"),
    *("@eadir", "@tmp", "@sharebin", "#recycle", "#snapshot", "~snapshot"),
    *("@recycle", "@recently-snapshot", "@__thumb", "zbthumbnail.info"),
}
JUNK_ENDINGS = ("@synoeastream", "@synoresource")

Seen = set[tuple[int, int]]  # the devices and numbers of folders


def expand_pictures(arguments: Iterable[str | os.PathLike]) -> list[pathlib.Path]:
    """Expands files, folders, and glob patterns into the paths of pictures.

    A file is kept, whatever its suffix. A folder stands for all pictures in it and in its
    subfolders, and a pattern such as `photos/**/*.jpg` for the pictures and folders that it
    matches. Hidden files and those of the system, such as `__MACOSX`, are left out. Links to
    folders are followed, but not upward, and each folder is read once.

    Args:
        arguments: Paths and patterns.

    Returns:
        Each picture once: the arguments in order, the contents of each sorted by path.

    Raises:
        FileNotFoundError: If an argument is neither a file, a folder, nor a pattern.
        PermissionError: If a folder cannot be read.
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
        FileNotFoundError, PermissionError, ValueError: As for `expand_pictures`; PermissionError
            may come after some paths.
    """
    path, kinds = pathlib.Path(argument), ", ".join(SUFFIXES)
    if path.is_file():
        yield str(path)
        return
    if path.is_dir():
        pictures, rule = _pictures_in(str(path), set()), f"A folder must hold pictures ({kinds})"
    elif glob.has_magic(argument):
        pictures, rule = _matching(path.parts), f"A pattern must match pictures ({kinds})"
    else:
        raise FileNotFoundError(f"There is no picture and no folder at {argument!r}.")
    first = next(pictures, None)
    if first is None:
        raise ValueError(f"{rule}. Received: {argument!r}, with none")
    yield first
    yield from pictures


def _matching(names) -> Iterator[str]:
    """Yields the pictures that a pattern's names match, and those in the folders they match."""
    seen: Seen = set()
    pictures = (
        picture
        for match in sorted(set(_matches(os.curdir, names)))
        for picture in (_pictures_in(match, seen) if os.path.isdir(match) else [match])
        if is_picture(os.path.basename(picture))
    )
    return iter(dict.fromkeys(pictures))


def _matches(folder, names) -> Iterator[str]:
    """Yields the files and folders below a folder that the names in a pattern match."""
    if not names:
        yield folder
        return
    first, *rest = names
    if first == "**":
        for place, _ in walk_once(folder):
            yield from _matches(place, rest)
    elif _exists(path := _join(folder, first)):  # whatever characters its name has
        yield from _matches(path, rest)
    elif glob.has_magic(first):
        for path, entry in _entries(folder, set()).items():
            takes = is_folder(entry) or (not rest and _may_be_file(entry))
            if takes and fnmatch.fnmatch(entry.name, first):
                yield from _matches(path, rest)


def _exists(path):
    try:
        return bool(os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _pictures_in(folder: str, seen: Seen) -> Iterator[str]:
    """Yields the pictures in a folder and its subfolders, sorted by the parts of their paths."""
    for path, entry in _entries(folder, seen).items():
        if is_folder(entry):
            yield from _pictures_in(path, seen)
        elif is_picture(entry.name):
            yield path


def walk_once(top: str) -> Iterator[tuple[str, list[str]]]:
    """Yields each folder from `top` down that is not empty, and the names of its files.

    A folder that several links lead to comes once, so links to their own parents end. Junk and
    anything but files, such as a pipe, is left out; a broken link stays.

    Raises:
        PermissionError: If a folder cannot be read. The message names it.
    """
    seen: Seen = set()
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        inside = _entries(folder, seen)
        folders = [path for path, entry in inside.items() if is_folder(entry)]
        waiting.extend(reversed(folders))
        if inside:
            files = (inside[path] for path in inside.keys() - folders)
            yield folder, sorted(entry.name for entry in files if _may_be_file(entry))


def _entries(folder: str, seen: Seen) -> dict[str, os.DirEntry]:
    """Returns a folder's entries by path, sorted; nothing if the folder has been `seen`."""
    status = os.stat(folder)
    with os.scandir(folder) as entries:
        inside = sorted(entries, key=lambda entry: entry.name)
    if status.st_dev in _system_devices():
        raise ValueError(
            f"A folder of pictures must lie on a disk. Received: {folder!r}, a view of the system"
        )
    if (status.st_dev, status.st_ino) in seen:
        return {}
    seen.add((status.st_dev, status.st_ino))
    return {_join(folder, entry.name): entry for entry in inside if not is_junk(entry.name)}


@functools.cache
def _system_devices() -> set[int]:
    """Returns the device numbers of /proc, /sys and /dev, whose files may never end."""
    devices = {os.stat(path).st_dev for path in ("/proc", "/sys", "/dev") if os.path.isdir(path)}
    return devices - {os.stat(os.sep).st_dev}


def _join(folder, name):
    return name if folder == os.curdir else os.path.join(folder, name)


def is_folder(entry: os.DirEntry) -> bool:
    """Whether a directory entry is a folder, or a link to one that is not above the link.

    Raises:
        PermissionError: If a link leads to a place that this user may not read.
    """
    try:
        if not entry.is_dir():
            return False
    except PermissionError:
        raise
    except OSError:  # a link in a circle
        return False
    place = pathlib.Path(entry.path)
    return not (entry.is_symlink() and place.parent.resolve().is_relative_to(place.resolve()))


def _may_be_file(entry):
    """Whether a directory entry is a file or a broken link."""
    try:
        return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))
    except OSError:
        return True


def is_junk(name: str) -> bool:
    """Whether a file or folder of this name is hidden or the system's, such as `__MACOSX`."""
    name = name.lower()
    return name.startswith((".", "~$")) or name in JUNK or name.endswith(JUNK_ENDINGS)


def is_picture(name: str) -> bool:
    """Whether a file of this name is a picture and not junk."""
    return os.path.splitext(name)[1].lower() in SUFFIXES and not is_junk(name)


class PictureFiles:
    """The pictures below a folder, which texts may spell differently.

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
        for folder, names in walk_once(self.root):
            for name in names:
                if is_picture(name):
                    path = os.path.relpath(os.path.join(folder, name), self.root)
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
