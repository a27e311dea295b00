"""What a folder of pictures holds, by split and class; no picture is opened."""

import dataclasses
import os
import unicodedata

from vit_keras.data.dataset import HELD_OUT
from vit_keras.data.held_out import path_hash
from vit_keras.data.picture_paths import is_folder, walk_once
from vit_keras.data.pillow_images import SUFFIXES


@dataclasses.dataclass(frozen=True)
class Layout:
    """The files of a folder that has one folder per class.

    Attributes:
        roots: The folder of each split. Without folders of splits, all images are "train".
        classes: The names of the classes, sorted.
        pictures: By split and class, the paths of the pictures, relative to the split's folder.
        others: Paths of files in the classes' folders that are not pictures, sorted.
        loose: Pictures that lie in no folder of a class.
        unused: Folders beside those of the splits.
        problems: Why a classifier cannot be trained on the folder, the gravest first.
    """

    roots: dict[str, str]
    classes: list[str]
    pictures: dict[str, dict[str, list[str]]]
    others: list[str]
    loose: list[str]
    unused: list[str]
    problems: list[str]

    def images(self, split: str) -> list[str]:
        """Returns the paths of a split's pictures in an order that mixes the classes.

        The order follows from the names alone, so that a slice is a sample.
        """
        paths = [path for of_class in self.pictures[split].values() for path in of_class]
        return sorted(paths, key=path_hash)


def read_layout(path: str, trains: bool = True) -> Layout:
    """Reads the names of a folder's files.

    Folders train, test, validation, val, valid, and dev are splits, in letters of either case.
    Without train, a held-out folder must hold folders of the classes beside it, since these words
    may also be names of classes. Where nothing `trains`, a held-out folder stands for train too.

    Raises:
        ValueError: If there is no folder at `path`.

    Example:
        ```python
        layout = data.read_layout("photos")
        layout.classes  # ["cat", "dog"]
        layout.problems  # why nothing can be learned from the folder; empty for a good one
        ```
    """
    if not os.path.isdir(path):
        raise ValueError(f"`dataset` folder:PATH needs a folder. Received: {path!r}")
    names = _subfolders(path)
    roots = _roots(path, names)
    taken = {os.path.relpath(root, path) for root in roots.values()}
    beside = [name for name in names if name not in taken]
    in_path = roots["train"] == path
    others: list[str] = []
    pictures = {}
    for split, root in roots.items():
        of_split = beside if root == path else _subfolders(root)
        pictures[split] = {name: _pictures(root, name, others) for name in of_split}
    if not (trains or pictures["train"]) and len(roots) > 1:
        first = list(roots)[1]
        roots["train"], pictures["train"] = roots[first], pictures[first]
    classes = list(pictures["train"])
    loose = [
        os.path.join(root, name)
        for root in dict.fromkeys((path, *roots.values()))
        for name in sorted(os.listdir(root))
        if _is_picture(name) and os.path.isfile(os.path.join(root, name))
    ]
    unused = [] if in_path else beside
    problems = [*_problems(path, roots, pictures, loose)]
    return Layout(roots, classes, pictures, sorted(others), loose, unused, problems)


def _roots(path, names):
    """Returns the folder of each split; that of train first, which is `path` without one."""
    known = {name.lower(): name for name in names if name.lower() in ("train", *HELD_OUT)}
    others = set(names) - set(known.values())
    if "train" not in known:
        known = {
            split: name
            for split, name in known.items()
            if _holds_classes(os.path.join(path, name), others)
        }
    held_out = {name: os.path.join(path, known[name]) for name in HELD_OUT if name in known}
    train = os.path.join(path, known["train"]) if "train" in known else path
    return {"train": train, **held_out}


def _holds_classes(folder, classes):
    """Whether all folders in `folder` are classes; if there are no classes, whether it has any."""
    names = set(_subfolders(folder))
    return bool(names) and (names <= classes or not classes)


def _subfolders(path):
    return sorted(e.name for e in os.scandir(path) if is_folder(e) and not e.name.startswith("."))


def _is_picture(name):
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _pictures(root, name, others):
    """Lists the pictures of a class, relative to `root`, and adds its other files to `others`."""
    pictures = []
    for place, files in walk_once(os.path.join(root, name)):
        for file in files:
            if _is_picture(file):
                pictures.append(os.path.relpath(os.path.join(place, file), root))
            elif not file.startswith("."):
                others.append(os.path.join(place, file))
    return pictures


def is_one_line(name: str) -> bool:
    """Whether a name has no line breaks, no control characters, and no bytes that are no text."""
    return not any(unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") for sign in name)


def _problems(path, roots, pictures, loose):
    kinds = ", ".join(SUFFIXES)
    if not pictures["train"] and len(roots) > 1:
        held_out = [os.path.basename(root) for split, root in roots.items() if split != "train"]
        yield (
            f"A folder with {' and '.join(held_out)} needs a folder train beside. Received: "
            f"{path!r} without one"
        )
        return
    for split, root in roots.items():
        if not any(pictures[split].values()):
            where = f"pictures in no folder of a class ({len(loose):,})" if loose else "none"
            yield (
                f"A folder of images must hold CLASS/x with a suffix of {kinds}. Received: "
                f"{root!r}, which has {where}"
            )
        elif empty := [name for name, of_class in pictures[split].items() if not of_class]:
            yield f"Every class needs images ({kinds}). Received: none in {root!r}: {empty}"
        if broken := [name for name in pictures[split] if not is_one_line(name)]:
            yield (
                "The name of a class must be text on one line. "
                f"Received: {broken} in {root!r}. Rename the folders"
            )
        if unknown := [name for name in pictures[split] if name not in pictures["train"]]:
            yield (
                f"Every class of {split!r} must be one of 'train'. Received: {unknown} in {root!r}"
            )
