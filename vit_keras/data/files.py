"""Data sets of picture files: rows of files, and folders of classes, masks, or any pictures."""

import dataclasses
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.boxes import holds_boxes, read_boxes, with_boxes
from vit_keras.data.dataset import SPLITS, Source, as_labels, split_name
from vit_keras.data.held_out import path_hash
from vit_keras.data.labels import Labels, no_labels
from vit_keras.data.masks import find_masks, holds_masks, with_masks
from vit_keras.data.picture_files import SUFFIXES, read_file
from vit_keras.data.picture_paths import expand_argument, is_folder, is_junk, is_picture, walk_once
from vit_keras.support import extras

HEIC = (".heic", ".heif")


def file_source(
    name: str, root: str, files: Sequence[str], labels: Labels, splits: Iterable[str], **known: Any
) -> Source:
    """Makes the source of N picture files.

    Args:
        name: The name of the data set, as `load` takes it.
        root: The folder that the files are relative to.
        files: The N files, whose names decide which pictures are held out.
        labels: Their labels.
        splits: The split of each file, `(N,)`.
        **known: More fields of a `Source`.

    Raises:
        ImportError: If a picture is HEIC, and pillow-heif is not installed.
    """
    if any(path.lower().endswith(HEIC) for path in files):  # now, not in the middle of training
        extras.check("pillow_heif")
    places, names = [os.path.join(root, path) for path in files], np.array([*splits], str)
    if known.get("groups") is None and len({*files}) < len(files):
        known["groups"] = files  # several rows may share a picture
    order = sorted({*names.tolist()}, key=lambda split: (split != "train", split))
    return Source(
        name,
        labels,
        lambda i: read_file(places[i]),
        {split: np.flatnonzero(names == split) for split in order},
        name_of=places.__getitem__,
        files=lambda indices: [(files[i], places[i]) for i in indices],
        keys=files,
        **known,
    )


def labels_in_names(paths: Sequence[str], pattern: str) -> Labels:
    """Finds the class of each file in its name, as fast.ai's `from_name_re` does.

    Raises:
        ValueError: If the pattern has no group, or does not match a name.
    """
    try:
        matches = [re.search(pattern, re.split(r"[\\/]", path)[-1]) for path in paths]
    except re.error as error:
        raise ValueError(f"`data.label_pattern` must be a regular expression: {error}") from error
    unmatched = [path for path, match in zip(paths, matches) if not (match and match.re.groups)]
    if unmatched or not paths:
        raise ValueError(
            "`data.label_pattern` must match the name of each file, with the class in parentheses, "
            f"such as '^(.+)_\\d+'. Received: {pattern!r}, and {len(unmatched):,} names that it "
            f"does not match, such as {unmatched[:5]}"
        )
    texts = [unicodedata.normalize("NFC", match[1] or "") for match in matches if match]
    names = sorted({*texts})
    return Labels("classes", tuple(names), np.searchsorted(names, texts).astype("int32"))


def load(path: str, config: DataConfig, task: str, labeled: bool) -> Source:
    """Opens `path`/train/CLASS/x.jpg with a held-out split beside it, or `path`/CLASS/x.jpg.

    For pictures with masks, see `masks.holds_masks`, and for boxes, `boxes.holds_boxes`. With
    `config.label_pattern`, the name of each picture gives its class, at any depth. If pictures need
    not be `labeled`, a folder with another layout, or with pictures next to the class folders, has
    no classes: all pictures in it and in its subfolders are one data set. If symbolic or hard links
    put a picture into several folders, these folders are its labels.

    The held-out split is a folder named test, validation, val, valid, or dev. Without one,
    `config.test_percent` of each class is held out. If `config.train_split` is not part of train, a
    held-out folder may be the only one, such as ImageNet's val. The order of the images follows
    from their names alone and mixes the classes, so that a slice is a sample.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If a class has no training images, or if train lacks a class of a held-out
            split.
    """
    if task == "masks" or (task == "auto" and holds_masks(path)):
        return _with_masks(path, config)
    if task == "boxes" or (task == "auto" and holds_boxes(path)):
        return _with_boxes(path)
    layout = read_layout(path, trains="train" in config.train_split)
    roots = layout.roots.items()
    is_plain = layout.problems or layout.loose or len(layout.classes) < 2
    if config.label_pattern or (not labeled and is_plain):
        # Held-out folders may lie below the training pictures; each picture is in one split.
        split_of = {file: split for split, root in roots for file in expand_argument(root)}
        (files, splits), pattern = _in_order(path, split_of.items()), config.label_pattern
        return _source(path, files, splits, labels_in_names(files, pattern) if pattern else None)
    if layout.problems:
        raise ValueError(layout.problems[0])
    rows = [(file, split, of) for split, _ in roots for file, of in _linked(layout, split).items()]
    if task == "auto":
        task = "labels" if any(len({*of}) > 1 for *_, of in rows) else "classes"
    if task == "classes":
        rows = [(file, split, [of]) for split, _ in roots for file, of in layout.images(split)]
    (files, splits, classes), names = _in_order(path, rows), layout.classes
    if task == "classes":
        values: Any = np.searchsorted(names, [name for (name,) in classes])
    else:
        task, values = "labels", [np.isin(names, of) for of in classes]
    return _source(path, files, splits, Labels(task, tuple(names), as_labels(values)))


def _in_order(path, rows) -> list[tuple]:
    """Sorts rows, each a file and what belongs to it, and returns the columns.

    Files become relative to the folder; their order depends on their names alone.
    """
    relative = [(os.path.relpath(file, path), *known) for file, *known in rows]
    return [*zip(*sorted(relative, key=lambda row: path_hash(row[0])))]


def _source(path, files, splits, labels=None) -> Source:
    labels = labels or no_labels(len(files))
    return file_source(f"folder:{path}", path, files, labels, splits)


def _with_masks(path, config) -> Source:
    """Returns the source of pictures and masks; their splits are folders."""
    roots = [*_split_folders(path).items()]
    if roots[0] == ("train", path) and "train" not in config.train_split:
        roots = roots[1:] or roots  # held-out pictures may be the only ones
    row_of = {image: (split, mask) for split, root in roots for image, mask in find_masks(root)}
    rows = ((image, split, os.path.relpath(mask, path)) for image, (split, mask) in row_of.items())
    files, splits, masks = _in_order(path, rows)
    return with_masks(_source(path, files, splits), path, masks, config)


def _with_boxes(path) -> Source:
    """Returns the source of annotated pictures."""
    pictures, names, form = read_boxes(path)
    pictures = sorted(pictures, key=lambda picture: path_hash(picture.file))
    files, splits = zip(*((picture.file, picture.split) for picture in pictures))
    return with_boxes(_source(path, files, splits), path, pictures, names, form)


@dataclasses.dataclass(frozen=True)
class Layout:
    """The files of a folder with one subfolder per class; no picture is opened.

    Attributes:
        roots: The folder of each split. Without folders of splits, all images are "train".
        classes: The names of the classes, sorted.
        pictures: The paths of the pictures by split and class.
        others: Paths of files in the classes' folders that are not pictures, sorted.
        loose: Pictures outside the folders of classes.
        unused: Folders that are not splits.
        problems: Why a classifier cannot be trained on the folder, the most serious first.
    """

    roots: dict[str, str]
    classes: list[str]
    pictures: dict[str, dict[str, list[str]]]
    others: list[str]
    loose: list[str]
    unused: list[str]
    problems: list[str]

    def images(self, split: str) -> Iterator[tuple[str, str]]:
        """Yields the path and the class of each picture of a split."""
        for name, of_class in self.pictures[split].items():
            yield from ((path, name) for path in of_class)


def read_layout(path: str, trains: bool = True) -> Layout:
    """Reads the names of the files in a folder.

    Folders named train, test, validation, val, valid, dev, training and testing are splits, in
    upper or lower case. If there is no train folder, such a folder is a split only if its folders
    are among the classes beside it, since a class may also have that name. Unless a model `trains`
    on the folder, held-out folders may be the only ones.

    Raises:
        FileNotFoundError: If there is no folder at `path`.

    Example:
        ```python
        layout = data.read_layout("photos")
        layout.classes  # ["cat", "dog"]
        layout.problems  # why nothing can be learned from the folder; empty for a good one
        ```
    """
    names, roots = _subfolders(path), _split_folders(path)
    beside_splits = lambda: [n for n in names if os.path.join(path, n) not in roots.values()]
    beside = beside_splits()
    if in_path := roots["train"] == path:  # then a folder of a split's name may be a class
        are_classes = lambda inside: inside and (inside <= {*beside} or not beside)
        are_split = lambda root: root == path or are_classes({*_subfolders(root)})
        roots = {split: root for split, root in roots.items() if are_split(root)}
        beside = beside_splits()
    others: list[str] = []
    pictures = {}
    for split, root in roots.items():
        of_split = beside if root == path else _subfolders(root)
        by_class = {name: _pictures(os.path.join(root, name), others) for name in of_split}
        if split != "train":  # a class may well have no held-out pictures
            by_class = {name: of_class for name, of_class in by_class.items() if of_class}
        pictures[split] = by_class
    if not (trains or pictures["train"]) and len(roots) > 1:
        del roots["train"], pictures["train"]
    loose = [
        os.path.join(root, name)
        for root in dict.fromkeys((path, *roots.values()))
        for name in sorted(os.listdir(root))
        if is_picture(name) and os.path.isfile(os.path.join(root, name))
    ]
    classes, unused = sorted(set().union(*pictures.values())), [] if in_path else beside
    problems = [*_problems(roots, classes, pictures, loose)]
    return Layout(roots, classes, pictures, sorted(others), loose, unused, problems)


def _split_folders(path) -> dict[str, str]:
    """Returns the folder of each split, train first: `path` itself without a train folder."""
    roots = {split_name(name): os.path.join(path, name) for name in _subfolders(path)}
    return {"train": path} | {name: roots[name] for name in SPLITS if name in roots}


def _subfolders(path):
    return sorted(e.name for e in os.scandir(path) if is_folder(e) and not is_junk(e.name))


def _pictures(folder, others):
    """Lists the pictures of a class, and adds its other files to `others`."""
    pictures: list[str] = []
    for place, files in walk_once(folder):
        for file in files:
            (pictures if is_picture(file) else others).append(os.path.join(place, file))
    return pictures


def _problems(roots, classes, pictures, loose):
    for split, root in roots.items():
        needed = classes if split == "train" else ()
        empty = [name for name in needed if not pictures[split].get(name)]
        if empty or not pictures[split]:
            yield (
                f"Every class needs a folder with images to train on, such as {root}/CLASS/x.png "
                f"({', '.join(SUFFIXES)}). Received: {root!r} with none in "
                f"{empty or 'any folder'}, and {len(loose):,} outside the folders of classes. "
                "Remove empty folders, or add images"
            )


def _linked(layout, split):
    """Returns the classes of each picture; the first of several links stands for all of them."""
    first, folders = dict[tuple[int, int], str](), dict[str, list[str]]()
    order = lambda row: path_hash(os.path.relpath(row[0], layout.roots[split]))
    for image, name in sorted(layout.images(split), key=order):
        if os.path.exists(image):  # a broken link is an unreadable picture
            status = os.stat(image)
            image = first.setdefault((status.st_dev, status.st_ino), image)
        folders.setdefault(image, []).append(name)
    return folders
