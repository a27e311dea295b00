"""Data sets in a folder: one folder for each class or label, pictures and masks, or pictures."""

import dataclasses
import os
from collections.abc import Iterator

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.dataset import HELD_OUT, Dataset, split_name
from vit_keras.data.held_out import path_hash
from vit_keras.data.labels import LABEL_KINDS, Labels
from vit_keras.data.masks import find_masks, holds_masks
from vit_keras.data.picture_paths import expand_pictures, is_folder, is_junk, is_picture, walk_once
from vit_keras.data.pillow_images import SUFFIXES
from vit_keras.data.rows import Rows, is_one_line, labels_in_names, open_rows, with_masks

SHARDS = (".parquet", ".tar", ".tfrecord", ".array_record")


def load(
    path: str, channels: int, config: DataConfig, task: str = "auto", labeled: bool = True
) -> Dataset:
    """Opens `path`/train/CLASS/x.jpg with a held-out split beside it, or `path`/CLASS/x.jpg.

    Pictures and masks are found as `masks.holds_masks` says. With `config.label_pattern`, the
    class is in the name of each picture, at any depth. If pictures need not be `labeled`, a folder
    that is not laid out so, or has pictures beside the classes, has no classes: all pictures in it
    and in its subfolders are one data set. The folders of a picture that is linked into several of
    them, by symbolic or hard links, are its labels.

    The held-out split is a folder test, validation, val, valid, or dev. Without one,
    `config.test_percent` of each class is held out. Where `config.train_split` is not of train, a
    held-out folder may lie there alone, as ImageNet's val. The order of the images follows from
    their names alone and mixes the classes, so that a slice is a sample.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If a class has no training images, or if a held-out split has a class that is
            not in train.
    """
    has_masks = task == "masks" or (task == "auto" and os.path.isdir(path) and holds_masks(path))
    if has_masks:
        pairs = {split: find_masks(root) for split, root in _mask_roots(path).items()}
        files = {split: [image for image, _ in of_split] for split, of_split in pairs.items()}
        rows = _rows(path, files, lambda images: Labels("masks", (), np.zeros((len(images), 1))))
        relative = lambda file: os.path.relpath(file, path)
        masks = {relative(i): relative(mask) for of in pairs.values() for i, mask in of}
        rows = with_masks(rows, [masks[image] for image in rows.files], config)
        return open_rows(rows, channels, config)
    layout = read_layout(path, trains="train" in config.train_split)
    least = LABEL_KINDS["classes"].least
    classless = layout.problems or layout.loose or len(layout.classes) < least
    if config.label_pattern or (classless and not labeled):
        pictures = lambda root: [*map(str, expand_pictures([root]))]
        files = {split: pictures(root) for split, root in layout.roots.items()}
        if config.label_pattern:
            read = lambda images: labels_in_names(images, config.label_pattern)
        else:
            read = lambda images: Labels("classes", (), np.zeros(len(images), "int32"))
        return open_rows(_rows(path, files, read), channels, config)
    if layout.problems:
        raise ValueError(layout.problems[0])
    folders = {split: _linked(layout, split) for split in layout.roots}
    if task == "auto":
        several = any(len({*of}) > 1 for of_split in folders.values() for of in of_split.values())
        task = "labels" if several else "classes"
    if task == "classes":
        folders = {split: {i: [c] for i, c in layout.images(split)} for split in folders}
    names, relative = tuple(layout.classes), lambda file: os.path.relpath(file, path)
    classes = {relative(image): of for split in folders.values() for image, of in split.items()}
    numbers = {name: k for k, name in enumerate(names)}

    def read_folders(images):
        values = [[numbers[name] for name in classes[image]] for image in images]
        if task == "classes":
            return Labels("classes", names, np.array(values, "int32")[:, 0])
        several = [np.isin(range(len(names)), present) for present in values]
        return Labels("labels", names, np.array(several, "float32"))

    files = {split: [*of_split] for split, of_split in folders.items()}
    return open_rows(_rows(path, files, read_folders), channels, config)


def _rows(path, files, read_labels) -> Rows:
    """The rows of some files by split, in an order that their names alone mix."""
    order = lambda images: sorted((os.path.relpath(i, path) for i in images), key=path_hash)
    files = {split: order(images) for split, images in files.items()}
    images = [image for of_split in files.values() for image in of_split]
    return Rows(
        name=f"folder:{path}",
        root=path,
        files=images,
        labels=read_labels(images),
        splits=np.repeat([*files], [*map(len, files.values())]),
        lacks="no folder test",
    )


def _mask_roots(path):
    """The folder of each split, that of train first."""
    folders = {split_name(name): os.path.join(path, name) for name in sorted(os.listdir(path))}
    folders = {name: root for name, root in folders.items() if os.path.isdir(root)}
    return {"train": path} | {
        name: folders[name] for name in ("train", *HELD_OUT) if name in folders
    }


@dataclasses.dataclass(frozen=True)
class Layout:
    """The files of a folder that has one folder per class; no picture is opened.

    Attributes:
        roots: The folder of each split. Without folders of splits, all images are "train".
        classes: The names of the classes, sorted.
        pictures: By split and class, the paths of the pictures.
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

    def images(self, split: str) -> Iterator[tuple[str, str]]:
        """Yields the path and the class of each picture of a split."""
        for name, of_class in self.pictures[split].items():
            yield from ((path, name) for path in of_class)


def read_layout(path: str, trains: bool = True) -> Layout:
    """Reads the names of a folder's files.

    Folders train, test, validation, val, valid, dev, training and testing are splits, in letters of
    either case. Without train, a held-out folder must hold folders of the classes beside it, since
    these words may also be names of classes. Where nothing `trains`, a held-out folder stands for
    train too.

    Raises:
        FileNotFoundError: If there is no folder at `path`.

    Example:
        ```python
        layout = data.read_layout("photos")
        layout.classes  # ["cat", "dog"]
        layout.problems  # why nothing can be learned from the folder; empty for a good one
        ```
    """
    if not os.path.isdir(path):
        raise FileNotFoundError(
            f"`dataset` folder:PATH needs a folder. Received: {path!r}, and there is none in "
            f"{os.getcwd()!r}"
        )
    names = _subfolders(path)
    roots = _roots(path, names)
    taken = {os.path.relpath(root, path) for root in roots.values()}
    beside = [name for name in names if name not in taken]
    in_path = roots["train"] == path
    others: list[str] = []
    pictures = {}
    for split, root in roots.items():
        of_split = beside if root == path else _subfolders(root)
        by_class = {name: _pictures(os.path.join(root, name), others) for name in of_split}
        if split != "train":  # a class without held-out pictures is none of an accident
            by_class = {name: of_class for name, of_class in by_class.items() if of_class}
        pictures[split] = by_class
    if not (trains or pictures["train"]) and len(roots) > 1:
        first = list(roots)[1]
        roots["train"], pictures["train"] = roots[first], pictures[first]
    loose = [
        os.path.join(root, name)
        for root in dict.fromkeys((path, *roots.values()))
        for name in sorted(os.listdir(root))
        if is_picture(name) and os.path.isfile(os.path.join(root, name))
    ]
    problems = [*_problems(path, roots, pictures, loose)]
    if shards := [file for file in others if file.lower().endswith(SHARDS)]:
        problems = [f"{text}. It holds {shards[0]!r}: give shards:{path}" for text in problems]
    classes, unused = list(pictures["train"]), [] if in_path else beside
    return Layout(roots, classes, pictures, sorted(others), loose, unused, problems)


def _roots(path, names):
    """Returns the folder of each split; that of train first, which is `path` without one."""
    splits = ("train", *HELD_OUT)
    known = {split_name(name): name for name in names if split_name(name) in splits}
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
    return sorted(e.name for e in os.scandir(path) if is_folder(e) and not is_junk(e.name))


def _pictures(folder, others):
    """Lists the pictures of a class, and adds its other files to `others`."""
    pictures = []
    for place, files in walk_once(folder):
        for file in files:
            if is_picture(file):
                pictures.append(os.path.join(place, file))
            elif not is_junk(file):
                others.append(os.path.join(place, file))
    return pictures


def _problems(path, roots, pictures, loose):
    kinds = ", ".join(SUFFIXES)
    if not pictures["train"] and len(roots) > 1:
        held_out = [os.path.basename(root) for split, root in roots.items() if split != "train"]
        yield (
            f"A folder with {' and '.join(held_out)} needs a folder train beside. Received: "
            f"{path!r} without one"
        )
        return
    if len(pictures["train"]) == 1:
        (name,) = pictures["train"]
        if len(_subfolders(inner := os.path.join(roots["train"], name))) > 1:
            yield (
                f"A classifier needs at least two classes. Received: {roots['train']!r}, which "
                f"holds nothing but the folder {name!r}. If the classes lie in it, give "
                f"folder:{inner if roots['train'] == path else f'PATH with {inner} as train'}"
            )
    for split, root in roots.items():
        if not any(pictures[split].values()):
            where = f"pictures in no folder of a class ({len(loose):,})" if loose else "none"
            yield (
                f"A folder of images must hold CLASS/x with a suffix of {kinds}. Received: "
                f"{root!r}, which has {where}"
            )
        elif empty := [name for name, of_class in pictures[split].items() if not of_class]:
            yield (
                f"Every class needs images ({kinds}). Received: none in {root!r}: {empty}. Remove "
                "the folders, or add images"
            )
        if broken := [name for name in pictures[split] if not is_one_line(name)]:
            yield (
                "The name of a class must be text on one line. "
                f"Received: {broken} in {root!r}. Rename the folders"
            )
        if unknown := [name for name in pictures[split] if name not in pictures["train"]]:
            yield (
                f"Every class of {split!r} must be one of 'train'. Received: {unknown} in {root!r}"
            )


def _linked(layout, split):
    """The classes of each picture; of files that are links to one, the first stands for all."""
    first: dict[tuple[int, int], str] = {}
    folders: dict[str, list[str]] = {}
    order = lambda row: path_hash(os.path.relpath(row[0], layout.roots[split]))
    for image, name in sorted(layout.images(split), key=order):
        try:
            status = os.stat(image)
            path = first.setdefault((status.st_dev, status.st_ino), image)
        except OSError:  # it is gone, or a link that leads nowhere: unreadable
            path = image
        folders.setdefault(path, []).append(name)
    return folders
