"""Data sets in a folder with one folder per class."""

import os

from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset, without_held_out
from vit_keras.data.held_out import hold_out
from vit_keras.data.image_files import from_files
from vit_keras.data.layout import Layout, read_layout
from vit_keras.data.origin import UnreadableImages


def load(path: str, channels: int, config: DataConfig) -> Dataset:
    """Opens `path`/train/CLASS/x.jpg with a held-out split beside it, or `path`/CLASS/x.jpg.

    The held-out split is a folder test, validation, val, valid, or dev. Without one,
    `config.test_percent` of each class is held out. The order of the images follows from their
    names alone and mixes the classes, so that a slice is a sample.

    Raises:
        ValueError: If there is no such folder, if a class has no images, or if a held-out split
            has a class that is not in train.
    """
    layout = read_layout(path)
    if layout.problems:
        raise ValueError(layout.problems[0])
    images, held_out_by = _members(layout, path, config)
    unreadable, splits = UnreadableImages(config.on_corrupt == "stop"), {}
    for split, paths in images.items():
        labels = [layout.classes.index(_class_of(image)) for image in paths]
        root = layout.roots.get(split, layout.roots["train"])
        splits[split] = from_files(root, paths, labels, channels, unreadable)
    return Dataset(f"folder:{path}", splits, tuple(layout.classes), unreadable, held_out_by)


def _members(layout: Layout, path: str, config: DataConfig) -> tuple[dict[str, list[str]], str]:
    """Returns the images of each split, and how held-out ones were chosen."""
    images = {split: layout.images(split) for split in layout.roots}
    is_split = len(images) > 1 or (
        layout.roots["train"] != path and not without_held_out(images, config.test_split)
    )
    if is_split:
        return images, ""
    paths = images["train"]
    held_out, held_out_by = hold_out(
        "no folder test", paths, [_class_of(image) for image in paths], config
    )
    members = {"train": ~held_out, "test": held_out}
    return {
        split: [image for image, chosen in zip(paths, mask) if chosen]
        for split, mask in members.items()
        if mask.any()
    }, held_out_by


def _class_of(path):
    return path.split(os.sep)[0]
