"""Finds the level that is white in a data set."""

import dataclasses
import os
from typing import Any

from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset
from vit_keras.data.deep_images import type_in_header
from vit_keras.data.depth import LEAST_OF_16, as_array
from vit_keras.data.pillow_images import SUFFIXES
from vit_keras.data.read_ahead import read_ahead

DEEP = (".png", ".tif", ".tiff", ".npy")  # pictures that may have more than 8 bits
HEAD = 32  # bytes of a PNG that say its depth
AHEAD = 64
SAMPLE = 64  # pictures of a split whose names do not say what they are


def complete_levels(config: DataConfig, dataset: Dataset) -> DataConfig:
    """Gives `config.levels` a value where it is "auto": what the whole data set holds.

    If any picture has floats, it is float. If any has more than 8 bits, it is 4095, or 65535 if a
    level is above that, for which pictures of 16 bits are read until one has such a level. If none
    has, it is 255.

    Names say that pictures have 8 bits, such as JPEGs, and headers say the depth of the others. In
    shards and other data sets whose pictures have no names of files, 64 pictures of each split are
    looked at, evenly spaced. Pictures that cannot be read are left out.

    Args:
        config: Where the images are.
        dataset: The data set.

    Example:
        >>> data.complete_levels(DataConfig(), data.load("digits", 1)).levels
        255
    """
    return dataclasses.replace(config, levels=_found(dataset)) if config.white is None else config


def _found(dataset) -> Any:
    jobs = [(split, i) for split in dataset.splits.values() for i in _candidates(split)]
    kinds = read_ahead(lambda job: _type(*job), jobs, AHEAD)
    deep = [(kind, job) for kind, job in zip(kinds, jobs) if kind != "uint8"]
    if any(kind == "float32" for kind, _ in deep):
        return "float"
    if not deep:
        return 255
    highest = read_ahead(lambda row: _highest(*row[1]), deep, AHEAD)
    return 65535 if any(level >= LEAST_OF_16 for level in highest) else 4095


def _candidates(split):
    """The indices of the pictures whose depth is looked at."""
    suffix = lambda i: os.path.splitext(split.name(i))[1].lower() if split.name else ""
    if len(split) and suffix(0) in SUFFIXES:
        return [i for i in range(len(split)) if suffix(i) in DEEP]
    return range(0, len(split), -(-len(split) // SAMPLE) or 1)


def _type(split, index):
    try:
        name = split.name(index) if split.name else ""
        if name.lower().endswith(".png") and os.path.isfile(name):
            with open(name, "rb") as file:
                return type_in_header(file.read(HEAD))
        data = split.encoded(index)
        if data is None:
            kind = split.read(index).dtype
            return "float32" if kind.kind == "f" else "uint8" if kind.itemsize == 1 else "uint16"
        return type_in_header(data[0])
    except Exception:  # the run says so, or takes another picture
        return "uint8"


def _highest(split, index):
    try:
        return int(as_array(split.read_as(None).decoded(index)[0]).max())
    except Exception:  # as above
        return 0
