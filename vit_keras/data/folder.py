"""Data sets in a folder with one folder per class."""

import os

from vit_keras.config import DataConfig
from vit_keras.data.held_out import choose_held_out, path_hash
from vit_keras.data.image_files import from_files
from vit_keras.data.pillow_images import SUFFIXES
from vit_keras.data.splits import HELD_OUT, Dataset, UnreadableImages


def load(path: str, channels: int, config: DataConfig) -> Dataset:
    """Opens `path`/train/CLASS/x.jpg with a held-out split beside it, or `path`/CLASS/x.jpg.

    The held-out split is a folder test, validation, val, or valid. Without a folder train,
    `config.test_percent` of each class is held out. The order of the images follows from their
    names alone and mixes the classes, so that a slice is a sample.

    Raises:
        ValueError: If there is no such folder, if a class has no images, or if a held-out split
            has a class that is not in train.
    """
    if not os.path.isdir(path):
        raise ValueError(f"`dataset` folder:PATH needs a folder. Received: {path!r}")
    names = _subfolders(path)
    unreadable = UnreadableImages(config.on_corrupt == "stop")
    classes = _subfolders(os.path.join(path, "train")) if "train" in names else names

    def make(root, paths):
        labels = [classes.index(_class_of(image)) for image in paths]
        return from_files(root, paths, labels, channels, unreadable)

    if "train" in names:
        _check_classes(path, names, classes)
        roots = {
            split: os.path.join(path, split) for split in ("train", *HELD_OUT) if split in names
        }
        splits = {
            split: make(root, _images(root, _subfolders(root))) for split, root in roots.items()
        }
    else:
        paths = _images(path, names)
        held_out = choose_held_out(paths, [_class_of(image) for image in paths], config)
        members = {"train": ~held_out, "test": held_out}
        splits = {
            split: make(path, [image for image, chosen in zip(paths, mask) if chosen])
            for split, mask in members.items()
            if mask.any()
        }
    return Dataset(f"folder:{path}", splits, tuple(classes), unreadable)


def _check_classes(path, names, classes):
    for split in (name for name in HELD_OUT if name in names):
        root = os.path.join(path, split)
        unknown = [name for name in _subfolders(root) if name not in classes]
        if unknown:
            raise ValueError(
                f"Every class of {split!r} must be one of 'train'. Received: {unknown} in {root!r}"
            )


def _class_of(path):
    return path.split(os.sep)[0]


def _subfolders(path):
    return sorted(e.name for e in os.scandir(path) if e.is_dir() and not e.name.startswith("."))


def _images(root, classes):
    """Lists the images of all classes, relative to `root`; ValueError if a class has none."""
    images, empty = [], []
    for name in classes:
        of_class = [
            os.path.relpath(os.path.join(place, file), root)
            for place, _, files in os.walk(os.path.join(root, name), followlinks=True)
            for file in files
            if file.lower().endswith(SUFFIXES) and not file.startswith(".")
        ]
        images += of_class
        empty += [] if of_class else [name]
    kinds = ", ".join(SUFFIXES)
    if not images:
        raise ValueError(
            f"A folder of images must hold CLASS/x with a suffix of {kinds}. Received: {root!r}, "
            "which has none"
        )
    if empty:
        raise ValueError(f"Every class needs images ({kinds}). Received: none in {root!r}: {empty}")
    return sorted(images, key=path_hash)
