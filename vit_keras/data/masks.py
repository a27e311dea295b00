"""Data sets of pictures and masks, in a folder or a table."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.dataset import HELD_OUT, Dataset, without_held_out
from vit_keras.data.held_out import hold_out, path_hash
from vit_keras.data.mask_files import classes_in, from_mask_files
from vit_keras.data.origin import UnreadableImages
from vit_keras.data.picture_paths import walk_once
from vit_keras.data.pillow_images import SUFFIXES
from vit_keras.tasks import VOID

IMAGES, MASKS, NAMES = "images", "masks", "classes.txt"
UNIT = "the pictures"


def holds_masks(path: str) -> bool:
    """Whether a folder, or its folder train, has the folders images and masks.

    Example:
        >>> holds_masks("photos")  # which has a folder for each class
        False
    """
    return any(
        os.path.isdir(os.path.join(root, IMAGES)) and os.path.isdir(os.path.join(root, MASKS))
        for root in (path, os.path.join(path, "train"))
    )


def load_folder(path: str, channels: int, config: DataConfig) -> Dataset:
    """Opens `path`/train/images/x.jpg and `path`/train/masks/x.png, or the same without train.

    A held-out split is a folder beside train, as for classes; without one, `config.test_percent` of
    the pictures are held out. A picture and its mask have the same name, but for the suffix.
    `path`/classes.txt names the classes, one a line; without it, their numbers do, up to the
    largest one in the training masks.

    Raises:
        ValueError: There are no such folders, or not one mask for each picture.
    """
    roots = _roots(path)
    pairs = {split: _pairs(root) for split, root in roots.items()}
    held_out_by = ""
    if len(pairs) == 1 and without_held_out(pairs, config.test_split):
        pairs, held_out_by = _hold_out(pairs["train"], path, "no folder test", config)
    return _dataset(f"folder:{path}", path, pairs, channels, config, held_out_by)


def _roots(path):
    """The folder of each split, that of train first."""
    known = {name.lower(): os.path.join(path, name) for name in sorted(os.listdir(path))}
    roots = {name: known[name] for name in ("train", *HELD_OUT) if name in known}
    roots = {name: root for name, root in roots.items() if os.path.isdir(root)}
    if "train" not in roots:
        roots = {"train": path, **roots}
    for root in roots.values():
        if missing := [n for n in (IMAGES, MASKS) if not os.path.isdir(os.path.join(root, n))]:
            raise ValueError(
                f"A folder of pictures and masks must hold the folders {IMAGES} and {MASKS}. "
                f"Received: {root!r} without {' and '.join(missing)}"
            )
    return roots


def _pairs(root) -> list[tuple[str, str]]:
    """The picture and the mask of each name, in an order that follows from the names alone."""
    images, masks = (_by_stem(os.path.join(root, name)) for name in (IMAGES, MASKS))
    problems = [
        f"{len(names)} {what}, such as {names[:5]}"
        for names, what in (
            (sorted(images.keys() - masks.keys()), "pictures without a mask"),
            (sorted(masks.keys() - images.keys()), "masks without a picture"),
        )
        if names
    ]
    if problems:
        raise ValueError(
            "Every picture needs a mask of the same name, and every mask a picture. "
            f"Received: {root!r} with {' and '.join(problems)}"
        )
    if not images:
        kinds = ", ".join(SUFFIXES)
        raise ValueError(
            f"{os.path.join(root, IMAGES)!r} must hold pictures ({kinds}). Received: none"
        )
    stems = sorted(images, key=path_hash)
    return [(images[stem], masks[stem]) for stem in stems]


def _by_stem(folder) -> dict[str, str]:
    """The pictures in a folder by their paths below it, without suffixes."""
    files: dict[str, str] = {}
    for place, names in walk_once(folder):
        for name in sorted(names):
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                path = os.path.join(place, name)
                stem = os.path.splitext(os.path.relpath(path, folder))[0]
                if stem in files:
                    raise ValueError(
                        "Names of pictures must differ in more than the suffix. "
                        f"Received: {files[stem]!r} and {path!r}"
                    )
                files[stem] = path
    return files


def load_rows(
    path: str, columns: dict[str, Any], split_of_rows: np.ndarray, channels: int, config: DataConfig
) -> Dataset:
    """Opens the rows of a table with the columns path and mask, both relative to the table.

    Args:
        path: The table.
        columns: Its columns by name.
        split_of_rows: The split of each row, `(N,)` strings; all "train" without a column split.
        channels: 1 for grayscale or 3 for RGB.
        config: Says what is held out where the table does not.

    Raises:
        ValueError: Files do not exist.
    """
    root = os.path.dirname(os.path.abspath(path))
    places = {
        name: [os.path.join(root, str(file)) for file in columns[name]] for name in ("path", "mask")
    }
    missing = [f for files in places.values() for f in files if not os.path.isfile(f)]
    if missing:
        raise ValueError(
            f"The files of a table must exist. Received: {path!r}, which names {len(missing)} that "
            f"do not, such as {missing[:5]}"
        )
    rows = [*zip(places["path"], places["mask"])]
    names = sorted({*split_of_rows.tolist()})
    pairs = {name: [row for row, of in zip(rows, split_of_rows) if of == name] for name in names}
    held_out_by = ""
    if "train" in pairs and without_held_out(pairs, config.test_split):
        train, held_out_by = _hold_out(pairs["train"], root, "no column split", config)
        pairs |= train
    return _dataset(f"table:{path}", root, pairs, channels, config, held_out_by)


def _hold_out(pairs, root, lacks, config):
    """The pairs of "train" and "test", and how they were chosen."""
    paths = [os.path.relpath(image, root) for image, _ in pairs]
    chosen, held_out_by = hold_out(lacks, paths, [0] * len(pairs), config, UNIT)
    members = {
        name: [pair for pair, held_out in zip(pairs, chosen) if held_out == is_test]
        for name, is_test in (("train", False), ("test", True))
    }
    return {name: of_split for name, of_split in members.items() if of_split}, held_out_by


def _dataset(name, root, pairs, channels, config, held_out_by) -> Dataset:
    unreadable = UnreadableImages(config.on_corrupt == "stop")
    class_names = _class_names(root, [mask for _, mask in pairs["train"]])
    splits = {}
    for split, of_split in pairs.items():
        images, masks = ([pair[i] for pair in of_split] for i in (0, 1))
        splits[split] = from_mask_files(images, masks, len(class_names), channels, unreadable)
    return Dataset(name, splits, class_names, unreadable, held_out_by, "masks")


def _class_names(root: str, masks: Sequence[str]) -> tuple[str, ...]:
    """The lines of classes.txt, or the numbers up to the largest one in the masks."""
    file = os.path.join(root, NAMES)
    if not os.path.isfile(file):
        present = classes_in(masks)[:, :VOID].any(axis=0)
        return tuple(
            str(number) for number in range(int(np.flatnonzero(present).max(initial=0)) + 1)
        )
    with open(file, encoding="utf-8") as lines:
        names = [line.strip() for line in lines if line.strip()]
    if len({*names}) < len(names) or len(names) > VOID:
        raise ValueError(
            f"{file!r} must name up to {VOID} classes, each on a line and once. "
            f"Received: {len(names)} lines, such as {names[:5]}"
        )
    return tuple(names)
