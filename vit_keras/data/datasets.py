"""One row a data set: how its splits and the names of its classes are found."""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Split:
    """Labelled images in a fixed order.

    Attributes:
        labels: class of each image, `(N,)` int32.
        read: index, a scalar int64 tensor -> image `(H, W, C)` uint8, in TensorFlow's graph.
    """

    labels: np.ndarray
    read: Callable[[tf.Tensor], tf.Tensor]

    def __len__(self):
        return len(self.labels)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set: `splits` by name ("train", "test") and the names of its classes in order."""

    name: str
    splits: dict[str, Split]
    class_names: tuple[str, ...]

    def split(self, name: str) -> Split:
        """The split called `name`; ValueError with the names that there are otherwise."""
        if name not in self.splits:
            raise ValueError(
                f"`split` of {self.name!r} must be one of {', '.join(map(repr, self.splits))}. "
                f"Received: split={name!r}"
            )
        return self.splits[name]


def from_arrays(images: np.ndarray, labels: np.ndarray) -> Split:
    """A split of images in memory, `(N, H, W, C)` uint8, with their labels `(N,)`."""
    images = tf.constant(images)
    return Split(labels.astype("int32"), lambda index: tf.gather(images, index))


def digits() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Scikit-learn's handwritten digits: 1797 images 8x8x1 of the UCI test set, 360 held out."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    images = np.round(data.images * (255 / 16)).astype("uint8")[..., None]  # ink is 0 to 16
    train, test = train_test_split(
        np.arange(len(images)), test_size=360, stratify=data.target, random_state=0
    )
    return {name: (images[i], data.target[i]) for name, i in (("train", train), ("test", test))}


def _digits_dataset(channels: int) -> Dataset:
    splits = {
        name: from_arrays(np.repeat(images, channels, axis=-1), labels)
        for name, (images, labels) in digits().items()
    }
    return Dataset("digits", splits, tuple("0123456789"))


DATASETS: dict[str, Callable[[int], Dataset]] = {"digits": _digits_dataset}


def load(name: str, channels: int) -> Dataset:
    """The data set called `name`, with images of 1 (grey) or 3 (RGB) channels.

    Raises ValueError for an unknown name, or for a data set with a split that has no images.
    """
    if name not in DATASETS:
        raise ValueError(
            f"`dataset` must be one of {', '.join(map(repr, DATASETS))}. Received: dataset={name!r}"
        )
    dataset = DATASETS[name](channels)
    for split, images in dataset.splits.items():
        if len(images) == 0:
            raise ValueError(
                f"Every split of a data set needs images. Received: {name!r} with none in {split!r}"
            )
    return dataset
