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
    strata, names = (
        LABEL_KINDS[dataset.kind].strata(train.labels),
        list(map(str, range(len(train)))),
    )
    if config.fold is not None:
        number, folds = config.fold
        held_out = _folds(names, strata, folds, config.split_seed) == number
    else:
        options = dataclasses.replace(config, test_percent=config.dev_percent)
        held_out = choose_held_out(names, strata, options)
    return train.part(np.flatnonzero(~held_out)), train.part(np.flatnonzero(held_out))


def choose_held_out(paths: Sequence[str], classes: Sequence, config: DataConfig) -> np.ndarray:
    """Chooses `config.test_percent` of each class to hold out.

    An image's rank within its class follows from its path and `config.split_seed` alone, so new
    images do not reshuffle the old ones.

    Returns:
        Whether each image is held out, `(N,)` bool.
    """
    held_out = np.zeros(len(paths), bool)
    for members in _ranked(paths, classes, config.split_seed):
        count = min(round(len(members) * config.test_percent / 100), len(members) - 1)
        if config.test_percent and not count:
            count = int(len(members) > 1)
        held_out[members[:count]] = True
    return held_out


def _ranked(paths, classes, seed):
    """The images of each class, ranked by their paths and the seed alone."""
    by_class: dict[Any, list[int]] = {}
    for i, name in enumerate(classes):
        by_class.setdefault(name, []).append(i)
    for members in by_class.values():
        yield sorted(members, key=lambda i: path_hash(f"{seed}/{paths[i]}"))


def _folds(paths, classes, count, seed):
    """The fold of each image: those of a class are dealt out in turn, and the classes go on."""
    dealt = [i for members in _ranked(paths, classes, seed) for i in members]
    folds = np.empty(len(paths), int)
    folds[dealt] = np.arange(len(paths)) % count
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


def held_out_note(lacks: str, count: int, config: DataConfig, unit: str) -> str:
    """Says that a data set which `lacks` a split has some pictures held out, and of what."""
    return (
        f"{lacks}: {config.test_percent:g} % of {unit}, {count:,} pictures, are held "
        f"out. Give data.test_percent, or a {lacks.removeprefix('no ')}"
    )


def path_hash(text: str) -> bytes:
    """Orders paths at random, but always in the same way."""
    return hashlib.sha256(os.fsencode(text)).digest()
