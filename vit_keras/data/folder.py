"""Data sets in a folder with one folder a class."""

import os

from vit_keras.config import DataConfig
from vit_keras.data.held_out import choose_held_out, path_hash
from vit_keras.data.image_files import from_files
from vit_keras.data.pillow_images import SUFFIXES
from vit_keras.data.splits import HELD_OUT, Dataset, UnreadableImages


def load(path: str, channels: int, config: DataConfig) -> Dataset:
    """`path`/train/CLASS/x.jpg with test, validation or val beside it, or `path`/CLASS/x.jpg.

    Without a split of its own, `config.test_percent` of each class is held out. Images stand in an
    order that follows from their names alone and mixes the classes, so that a slice is a sample.
    """
    if not os.path.isdir(path):
        raise ValueError(f"`dataset` folder:PATH needs a folder. Received: {path!r}")
    names = _folders(path)
    unreadable = UnreadableImages(config.on_corrupt == "stop")
    make = lambda root, found, classes: from_files(
        root, found, [classes.index(_class_of(f)) for f in found], channels, unreadable
    )
    if "train" not in names:
        found = _images(path, names)
        held_out = choose_held_out(found, [_class_of(f) for f in found], config)
        parts = {"train": ~held_out, "test": held_out}
        splits = {
            split: make(path, [f for f, inside in zip(found, chosen) if inside], names)
            for split, chosen in parts.items()
            if chosen.any()
        }
        return Dataset(f"folder:{path}", splits, tuple(names), unreadable)
    classes, splits = _folders(os.path.join(path, "train")), {}
    for split in ("train", *(name for name in HELD_OUT if name in names)):
        root = os.path.join(path, split)
        there = _folders(root)
        unknown = [name for name in there if name not in classes]
        if unknown:
            raise ValueError(
                f"Every class of {split!r} must be one of 'train'. Received: {unknown} in {root!r}"
            )
        splits[split] = make(root, _images(root, there), classes)
    return Dataset(f"folder:{path}", splits, tuple(classes), unreadable)


def _class_of(path):
    return path.split(os.sep)[0]


def _folders(path):
    return sorted(e.name for e in os.scandir(path) if e.is_dir() and not e.name.startswith("."))


def _images(root, classes):
    """Paths of the images of all classes, relative to `root`; ValueError where one has none."""
    found, empty = [], []
    for name in classes:
        inside = [
            os.path.relpath(os.path.join(at, file), root)
            for at, _, files in os.walk(os.path.join(root, name), followlinks=True)
            for file in files
            if file.lower().endswith(SUFFIXES) and not file.startswith(".")
        ]
        found += inside
        empty += [] if inside else [name]
    kinds = ", ".join(SUFFIXES)
    if not found:
        raise ValueError(f"A folder of images holds CLASS/x of {kinds}. Received: {root!r}, none")
    if empty:
        raise ValueError(f"Every class needs images ({kinds}). Received: none in {root!r}: {empty}")
    return sorted(found, key=path_hash)
