"""Chooses the images that a run is judged on."""

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset
from vit_keras.data.label_kinds import LABEL_KINDS
from vit_keras.data.order import HELD_OUT, generator
from vit_keras.data.splits import Split


def train_and_test(dataset: Dataset, config: DataConfig) -> tuple[Split, Split]:
    """Returns the splits that a run trains on and is judged on.

    With `config.dev_percent`, both are parts of the training split (the paper's development split,
    Table 4): that share of each class is held out by `config.split_seed`, and the test split is
    not used. With `config.fold`, one of several equal parts is held out in the same way.

    Example:
        >>> train, test = train_and_test(data.load("digits", 1), DataConfig(dev_percent=10.0))
        >>> len(train), len(test)  # both are parts of the training split
        (1295, 142)
    """
    train = dataset.split(config.train_split)
    if not config.dev_percent and config.fold is None:
        return train, dataset.split(config.test_split)
    strata, names = LABEL_KINDS[dataset.kind].strata(train.labels), range(len(train))
    if config.fold is not None:
        number, folds = config.fold
        held_out = _folds(names, strata, folds, config.split_seed) == number
    else:
        options = dataclasses.replace(config, test_percent=config.dev_percent)
        held_out = choose_held_out(names, strata, options)
    return train.part(np.flatnonzero(~held_out)), train.part(np.flatnonzero(held_out))


def choose_held_out(
    paths: Sequence[str] | range, classes: Sequence, config: DataConfig
) -> np.ndarray:
    """Chooses `config.test_percent` of each class to hold out.

    An image's rank within its class follows from its path and `config.split_seed` alone, so new
    images do not reshuffle the old ones.

    Args:
        paths: The names of the images, or their numbers.
        classes: One value for each image.
        config: The share, and the seed.

    Returns:
        Whether each image is held out, `(N,)` bool.
    """
    order, sizes = _ranked(paths, classes, config.split_seed)
    return _first_of_each(order, sizes, config.test_percent)


def _ranked(paths, classes, seed) -> tuple[np.ndarray, np.ndarray]:
    """The order of the images class by class, in each by their paths and the seed alone.

    Returns:
        The images' numbers in this order, and the sizes of the classes, as these first occur.
    """
    numbers: dict[Any, int] = {}
    codes = np.fromiter((numbers.setdefault(c, len(numbers)) for c in classes), int, len(classes))
    digests = bytearray()
    for path in paths:
        digests += path_hash(f"{seed}/{path}")[:16]
    high, low = np.frombuffer(digests, ">u8").astype("u8").reshape(-1, 2).T
    return np.lexsort((low, high, codes)), np.bincount(codes)


def _first_of_each(order, sizes, percent) -> np.ndarray:
    """Marks a share of each class: the first ones in an order that goes class by class."""
    counts = np.minimum(np.round(sizes * percent / 100).astype(int), sizes - 1)
    if percent:
        counts = np.where(counts > 0, counts, sizes > 1)
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # within its class
    chosen = np.zeros(len(order), bool)
    chosen[order] = place < np.repeat(counts, sizes)
    return chosen


def _folds(paths, classes, count, seed):
    """The fold of each image: those of a class are dealt out in turn, and the classes go on."""
    order, _ = _ranked(paths, classes, seed)
    folds = np.empty(len(order), int)
    folds[order] = np.arange(len(order)) % count
    return folds


def hold_out(
    lacks: str,
    paths: Sequence[str],
    classes: Sequence,
    config: DataConfig,
    unit: str = "each class",
) -> tuple[np.ndarray, str]:
    """Chooses as `choose_held_out` for a data set that `lacks` a split, and says so.

    Args:
        lacks: What the data set has not, such as "no folder test".
        paths: The names of the pictures.
        classes: One value for each picture.
        config: The share that is held out.
        unit: What the share is taken of.

    Returns:
        Whether each image is held out, `(N,)` bool; and a sentence, empty if none is.
    """
    chosen = choose_held_out(paths, classes, config)
    if not chosen.any():
        return chosen, ""
    return chosen, held_out_note(lacks, int(chosen.sum()), config, unit)


def hold_out_by_number(
    lacks: str, split: Split, config: DataConfig, class_names: Sequence[str]
) -> tuple[dict[str, Split], str]:
    """Parts a training split of pictures without paths, by the numbers of its pictures.

    Args:
        lacks: What the data set has not, such as "no shard test".
        split: The pictures; their labels are classes.
        config: The share of each class that is held out, and the seed that chooses it.
        class_names: The names of the classes; empty without labels.

    Returns:
        The splits "train" and "test", and a sentence; the training split alone, and an empty
        sentence, if no picture is held out.
    """
    ranks = generator(config.split_seed, HELD_OUT).permutation(len(split))
    order = np.lexsort((ranks, split.labels))  # class by class, mixed in each
    chosen = _first_of_each(order, np.bincount(split.labels), config.test_percent)
    if not chosen.any():
        return {"train": split}, ""
    unit = "each class" if class_names else "the pictures"
    note = held_out_note(lacks, int(chosen.sum()), config, unit)
    members = {"train": ~chosen, "test": chosen}
    return {name: split.part(np.flatnonzero(mask)) for name, mask in members.items()}, note


def held_out_note(lacks: str, count: int, config: DataConfig, unit: str) -> str:
    """Says that a data set which `lacks` a split has some pictures held out, and of what."""
    return (
        f"{lacks}: {config.test_percent:g} % of {unit}, {count:,} pictures, are held "
        f"out. Give data.test_percent, or a {lacks.removeprefix('no ')}"
    )


def path_hash(text: str) -> bytes:
    """Orders paths at random, but always in the same way."""
    return hashlib.sha256(os.fsencode(text)).digest()
