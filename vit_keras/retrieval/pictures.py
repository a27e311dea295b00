"""Lists the pictures to embed: files, folders and patterns, or the images of a data set."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.picture_paths import is_folder, is_junk
from vit_keras.data.pillow_images import unreadable_message
from vit_keras.data.transforms import as_array

PREFIXES = ("folder", "table", "shards", "hf", "tfds", "vtab")  # of data sets, for `data.load`
DIGITS = "digits"


class Picture(NamedTuple):
    """One row of a table of embeddings, without its embedding.

    Attributes:
        path: The file, or the name of an image that is no file, such as `tfds:cifar10 test[3]`.
        label: The name of the class, or None.
        split: The split of the data set, or None.
        size: The number of bytes of the file, or None.

    Example:
        ```python
        (picture,) = retrieval.EmbeddingTable("features.parquet").pictures([17])
        picture.path, picture.label  # ("photos/train/cat/3.jpg", "cat")
        ```
    """

    path: str
    label: str | None = None
    split: str | None = None
    size: int | None = None


class PictureList(NamedTuple):
    """Pictures in a fixed order, and how they are read.

    Attributes:
        pictures: The pictures, which may be listed once.
        read: Maps the number of a picture, its path, and a number of channels to its pixels,
            `(H, W, C)`; raises OSError or ValueError for one that cannot be read.

    Example:
        ```python
        arrays = np.zeros((2, 32, 32, 3), "uint8")
        pictures = [retrieval.Picture("first"), retrieval.Picture("second", label="cat")]
        listed = retrieval.PictureList(pictures, lambda number, path, channels: arrays[number])
        ```
    """

    pictures: Iterable[Picture]
    read: Callable[[int, str, int], np.ndarray]


def list_pictures(
    arguments: Iterable[str | os.PathLike], channels: int = 3, config: DataConfig | None = None
) -> PictureList:
    """Lists the pictures that a command's arguments name.

    Args:
        arguments: Files, folders and patterns, as `data.expand_pictures` takes them, or one data
            set: `folder:PATH`, `table:FILE`, `shards:PATTERN`, `hf:NAME`, `tfds:NAME`,
            `vtab:TASK` or `digits`. The images of a data set have labels and splits. A
            `folder:PATH` without folders of classes is listed as the folder PATH.
        channels: 1 for grayscale, 3 for RGB, or another number, for a data set.
        config: Says where TensorFlow Datasets keeps its files, which images are held out, and the
            levels and bands of pictures.

    Returns:
        A `PictureList`.

    Raises:
        FileNotFoundError, ValueError: As `data.expand_pictures` and `data.load` do.

    Example:
        ```python
        pictures = retrieval.list_pictures(["folder:photos"])
        next(iter(pictures.pictures))  # Picture(path='photos/cat/0.jpg', label='cat', ...)
        ```
    """
    names = [os.fspath(argument) for argument in arguments]
    datasets = [name for name in names if _is_dataset(name)]
    if datasets and len(names) > 1:
        (other, *_) = [name for name in names if name != datasets[0]] or datasets
        raise ValueError(
            f"A data set is listed alone. Received: {datasets[0]!r} beside {other!r}. Run the "
            "command once for each"
        )
    if datasets and not _is_flat(datasets[0]):
        return _of_dataset(datasets[0], channels, config or DataConfig())
    if datasets:
        names = [datasets[0].partition(":")[2]]
    pictures = (Picture(str(path), size=_size(path)) for path in data.expand_pictures(names))
    return PictureList(pictures, file_reader(config or DataConfig()))


def file_reader(config: DataConfig) -> Callable[[int, str, int], np.ndarray]:
    """Returns a function that reads a picture's file, as `PictureList.read` does."""
    depth: dict[str, Any] = {"levels": config.white, "bands": config.bands}
    return lambda number, path, channels: data.read_image(path, channels, **depth)


def _is_dataset(name):
    kind, colon, rest = name.partition(":")
    return not os.path.exists(name) and (kind in PREFIXES if colon and rest else name == DIGITS)


def _is_flat(name):
    """Whether `name` is a folder:PATH that has no folders of classes."""
    kind, _, path = name.partition(":")
    return (
        kind == "folder"
        and os.path.isdir(path)
        and not any(is_folder(e) and not is_junk(e.name) for e in os.scandir(path))
    )


def _of_dataset(name, channels, config):
    dataset = data.load(name, channels, config)
    splits = list(dataset.splits.items())
    ends = np.cumsum([len(split) for _, split in splits])

    def pictures():
        for key, split in splits:
            labels = split.labels if np.ndim(split.labels) == 1 else [None] * len(split)
            for index, label in enumerate(labels):
                path = split.name(index) if split.name else f"{name} {key}[{index}]"
                text = _label(dataset.class_names, label)
                yield Picture(path, text, key, _size(path))

    def read(number, path, channels):
        place = int(np.searchsorted(ends, number, side="right"))
        split = splits[place][1]
        index = number - int(ends[place] - len(split))
        if not split.origin:  # images in memory
            return split.read(index)
        try:
            return as_array(split.decoded(index)[0])
        except (OSError, SyntaxError, ValueError) as error:
            raise ValueError(unreadable_message(path, str(error))) from error

    return PictureList(pictures(), read)


def _label(names: Sequence[str], label: Any) -> str | None:
    if label is None or label < 0:
        return None
    return names[label] if names else str(label)


def _size(path):
    return os.path.getsize(path) if os.path.isfile(path) else None
