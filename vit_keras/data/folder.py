"""Data sets in a folder with one folder per class or label."""

import os

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset, without_held_out
from vit_keras.data.held_out import hold_out
from vit_keras.data.image_files import from_files
from vit_keras.data.label_kinds import LABEL_KINDS
from vit_keras.data.layout import Layout, read_layout
from vit_keras.data.masks import holds_masks, load_folder
from vit_keras.data.origin import UnreadableImages
from vit_keras.data.unlabeled import load_pictures


def load(
    path: str, channels: int, config: DataConfig, task: str = "auto", labeled: bool = True
) -> Dataset:
    """Opens `path`/train/CLASS/x.jpg with a held-out split beside it, or `path`/CLASS/x.jpg.

    If pictures need not be `labeled`, a folder that is not laid out so, or has pictures beside the
    classes, has no classes: all pictures in it and in its subfolders are one data set.

    A folder with `path`/train/images and `path`/train/masks holds masks: see `masks.load_folder`.
    The folders of a picture that is linked into several of them, by symbolic or hard links, are its
    labels.

    The held-out split is a folder test, validation, val, valid, or dev. Without one,
    `config.test_percent` of each class is held out. Where `config.train_split` is not of train, a
    held-out folder may lie there alone, as ImageNet's val. The order of the images follows from
    their names alone and mixes the classes, so that a slice is a sample.

    Raises:
        ValueError: If there is no such folder, if a class has no images, or if a held-out split
            has a class that is not in train.
    """
    if task == "masks" or (task == "auto" and holds_masks(path)):
        return load_folder(path, channels, config)
    layout = read_layout(path, trains="train" in config.train_split)
    classless = (
        layout.problems or layout.loose or len(layout.classes) < LABEL_KINDS["classes"].least
    )
    if classless and not labeled:
        return load_pictures(layout, path, channels, config)
    if layout.problems:
        raise ValueError(layout.problems[0])
    pictures = {split: _linked(layout, split) for split in layout.roots}
    if task == "auto":
        folders = [names for of_split in pictures.values() for names in of_split.values()]
        task = "labels" if any(len(names) > 1 for names in folders) else "classes"
    if task == "classes":
        pictures = {
            split: {image: [_class_of(image)] for image in layout.images(split)}
            for split in layout.roots
        }
    images, held_out_by = _members(pictures, layout, path, config, task)
    unreadable, splits = UnreadableImages(config.on_corrupt == "stop"), {}
    for split, paths in images.items():
        folders = pictures.get(split, pictures["train"])
        numbers = [[layout.classes.index(name) for name in folders[image]] for image in paths]
        labels = _several(numbers, len(layout.classes)) if task == "labels" else np.ravel(numbers)
        root = layout.roots.get(split, layout.roots["train"])
        splits[split] = from_files(root, paths, labels, channels, unreadable)
    names = tuple(layout.classes)
    return Dataset(f"folder:{path}", splits, names, unreadable, held_out_by, task)


def _linked(layout, split):
    """The folders of each picture; of files that are links to one, the first stands for all."""
    first: dict[tuple[int, int], str] = {}
    folders: dict[str, list[str]] = {}
    for image in layout.images(split):
        try:
            status = os.stat(os.path.join(layout.roots[split], image))
            path = first.setdefault((status.st_dev, status.st_ino), image)
        except OSError:  # it is gone, or a link that leads nowhere: unreadable
            path = image
        folders.setdefault(path, []).append(_class_of(image))
    return folders


def _several(numbers, count):
    """Labels `(N, K)` of 0 and 1, from the numbers of those that each picture has."""
    labels = np.zeros((len(numbers), count), "float32")
    for row, present in zip(labels, numbers):
        row[present] = 1
    return labels


def _members(pictures, layout: Layout, path: str, config: DataConfig, task: str):
    """Returns the images of each split, and how held-out ones were chosen."""
    images = {split: list(of_split) for split, of_split in pictures.items()}
    is_split = len(images) > 1 or (
        layout.roots["train"] != path and not without_held_out(images, config.test_split)
    )
    if is_split:
        return images, ""
    paths = images["train"]
    strata = [tuple(sorted(pictures["train"][image])) for image in paths]
    unit = LABEL_KINDS[task].unit if task != "labels" else "each set of labels"
    held_out, held_out_by = hold_out("no folder test", paths, strata, config, unit)
    members = {"train": ~held_out, "test": held_out}
    return {
        split: [image for image, chosen in zip(paths, mask) if chosen]
        for split, mask in members.items()
        if mask.any()
    }, held_out_by


def _class_of(path):
    return path.split(os.sep)[0]
