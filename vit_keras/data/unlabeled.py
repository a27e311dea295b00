"""Folders of pictures without labels, for runs that learn from the pictures alone."""

import os

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset
from vit_keras.data.held_out import hold_out, path_hash
from vit_keras.data.image_files import from_files
from vit_keras.data.layout import Layout
from vit_keras.data.origin import UnreadableImages
from vit_keras.data.picture_paths import expand_pictures


def load_pictures(layout: Layout, path: str, channels: int, config: DataConfig) -> Dataset:
    """Opens all pictures in a folder and its subfolders as a data set without classes.

    A folder `train` and a held-out one beside it are splits, as in a folder of classes. Otherwise
    `config.test_percent` of the pictures are held out. Their order follows from their names alone.

    Raises:
        ValueError: If there are no pictures in a split.
    """
    splits = {split: _pictures(root) for split, root in layout.roots.items()}
    held_out_by = ""
    if len(splits) == 1:
        paths = splits["train"]
        chosen, held_out_by = hold_out(
            "no folder test", paths, [0] * len(paths), config, "the pictures"
        )
        members = {"train": ~chosen, "test": chosen}
        splits = {
            split: [path for path, is_member in zip(paths, mask) if is_member]
            for split, mask in members.items()
            if mask.any()
        }
    unreadable = UnreadableImages(config.on_corrupt == "stop")
    opened = {
        split: from_files(
            layout.roots.get(split, layout.roots["train"]),
            paths,
            np.zeros(len(paths), "int32"),
            channels,
            unreadable,
        )
        for split, paths in splits.items()
    }
    return Dataset(f"folder:{path}", opened, (), unreadable, held_out_by)


def _pictures(root):
    """The pictures in `root` at any depth, relative to it, mixed by their names."""
    paths = [os.path.relpath(picture, root) for picture in expand_pictures([root])]
    return sorted(paths, key=path_hash)
