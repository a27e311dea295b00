"""One row a kind of data set: how its splits and the names of its classes are found."""

import functools
from collections.abc import Callable

import numpy as np

from vit_keras import extras
from vit_keras.config import DataConfig
from vit_keras.data import folder, table, tfds, vtab
from vit_keras.data.pillow_images import check_channels
from vit_keras.data.splits import Dataset, from_arrays


def digits() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Scikit-learn's handwritten digits: 1797 images 8x8x1 of the UCI test set, 360 held out."""
    require = functools.partial(extras.require, extra="data", purpose="The digits data set")
    data = require("sklearn.datasets").load_digits()
    images = np.round(data.images * (255 / 16)).astype("uint8")[..., None]  # ink is 0 to 16
    train, test = require("sklearn.model_selection").train_test_split(
        np.arange(len(images)), test_size=360, stratify=data.target, random_state=0
    )
    return {name: (images[i], data.target[i]) for name, i in (("train", train), ("test", test))}


def _digits_dataset(channels: int, config: DataConfig) -> Dataset:
    splits = {
        name: from_arrays(np.repeat(images, channels, axis=-1), labels)
        for name, (images, labels) in digits().items()
    }
    return Dataset("digits", splits, tuple("0123456789"))


DATASETS: dict[str, Callable[[int, DataConfig], Dataset]] = {"digits": _digits_dataset}
KINDS: dict[str, Callable[[str, int, DataConfig], Dataset]] = {  # by what stands before the colon
    "folder": folder.load,
    "table": table.load,
    "tfds": tfds.load,
    "vtab": vtab.load,
}


def load(name: str, channels: int, config: DataConfig | None = None) -> Dataset:
    """The data set called `name`, with images of 1 (grey) or 3 (RGB) channels.

    A name is digits, folder:PATH, table:FILE, tfds:NAME or vtab:TASK; `config` says where
    TensorFlow Datasets keeps its files, what is held out and what an unreadable image does. Raises
    ValueError or FileNotFoundError that says what is wrong with the name or what it leads to.
    """
    check_channels(channels)
    kind, colon, rest = name.partition(":")
    known = KINDS if colon else DATASETS
    if kind not in known or (colon and not rest):
        raise ValueError(
            f"`dataset` must be one of {', '.join(map(repr, DATASETS))}, or folder:PATH, "
            f"table:FILE, tfds:NAME or vtab:TASK. Received: dataset={name!r}"
        )
    config = config or DataConfig()
    dataset = KINDS[kind](rest, channels, config) if colon else DATASETS[kind](channels, config)
    if len(dataset.class_names) < 2:
        raise ValueError(
            f"A classifier needs at least two classes. Received: {list(dataset.class_names)} of "
            f"{name!r}"
        )
    for split, found in dataset.splits.items():
        if len(found) == 0:
            raise ValueError(
                f"Every split of a data set needs images. Received: {name!r} with none in {split!r}"
            )
    return dataset
