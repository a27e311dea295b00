"""`hf:NAME`: data sets of the Hugging Face hub, read by index with the library `datasets`."""

import os
import pathlib
import re
from typing import Any

import numpy as np

from vit_keras import extras
from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset, without_held_out
from vit_keras.data.held_out import hold_out_by_number
from vit_keras.data.origin import Origin, UnreadableImages
from vit_keras.data.shards.formats import MOST_CLASSES
from vit_keras.data.splits import Split, as_labels

NAME = re.compile(r"(?P<path>[^@:]+)(?:@(?P<revision>[^:]+))?(?::(?P<variant>.+))?")
SAVED = ("dataset_dict.json", "state.json")  # of `save_to_disk`
IMAGE, LABELS, TEXTS = "image", ("label", "labels"), ("string", "large_string")
NO_LABEL = -1


def load(
    name: str, channels: int, config: DataConfig, task: str = "auto", labeled: bool = True
) -> Dataset:
    """Opens a data set, which is downloaded and prepared first if necessary.

    Without a held-out split, `config.test_percent` of each class is held out by the numbers of the
    pictures. Splits in which no picture has a class are left out if classes are needed.

    Args:
        name: `USER/NAME`, with `@REVISION` and `:CONFIG` if need be, or a folder: one that has the
            files of a data set, or one that `save_to_disk` wrote.
        channels: 1 for grayscale or 3 for RGB.
        config: Says the column of the labels, the held-out share, and what happens to unreadable
            pictures.
        task: The labels are classes.
        labeled: Whether all pictures must have a class. Without, a data set in which some have none
            has no `class_names`.

    Raises:
        FileNotFoundError: If there is no such data set.
        ValueError: If it cannot be opened, or has no pictures or no classes. The message gives the
            columns that it has.
        ImportError: If `datasets` or Pillow is not installed.
    """
    extras.check("PIL", extra="data", purpose="Reading pictures")
    opened = _opened(name)
    features = next(iter(opened.values())).features
    image, column = _image_column(name, features), _label_column(name, features, config, labeled)
    names, labels = _labels(name, opened, column, labeled)
    unreadable = UnreadableImages(config.on_corrupt == "stop")
    splits = {
        key: _split(f"hf:{name} {key}", opened[key], image, labels[key], channels, unreadable)
        for key in labels
    }
    held_out_by = ""
    lacks_test = "train" in splits and without_held_out(splits, config.test_split)
    if lacks_test and len(splits["train"]):
        splits, held_out_by = hold_out_by_number(
            "no held-out split", splits["train"], config, names
        )
    return Dataset(f"hf:{name}", splits, names, unreadable, held_out_by)


def _library() -> Any:
    return extras.require("datasets", extra="hf", purpose="Reading Hugging Face's data sets")


def _opened(name):
    """The splits of a data set by name, as `datasets.Dataset`."""
    library, match = _library(), NAME.fullmatch(name)
    if os.path.isdir(name):
        path, revision, variant = os.path.abspath(name), None, None
    elif match:
        path, revision, variant = match.groups()
    else:
        raise ValueError(f"`dataset` must be hf:USER/NAME[@REVISION][:CONFIG]. Received: hf:{name}")
    try:
        if any(pathlib.Path(path, file).is_file() for file in SAVED):
            opened = library.load_from_disk(path)
        else:
            opened = library.load_dataset(path, variant, revision=revision)
    except Exception as error:  # each kind of file, and the network, have errors of their own
        reason = " ".join(str(error).split())
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
        raise kind(
            f"hf:{name} cannot be opened ({type(error).__name__}: {reason:.300}). Give "
            "hf:USER/NAME[@REVISION][:CONFIG] as on huggingface.co/datasets, or a folder"
        ) from error
    return dict(opened) if isinstance(opened, dict) else {"train": opened}


def _image_column(name, features):
    images = [key for key, kind in features.items() if isinstance(kind, _library().Image)]
    if not images:
        raise ValueError(f"A data set needs a column of images. {_received(name, features)}")
    return IMAGE if IMAGE in images else images[0]


def _label_column(name, features, config, labeled):
    """The column of the classes; None without one."""
    columns = config.label_columns
    if len(columns) > 1 or (columns and columns[0] not in features):
        raise ValueError(
            "`data.label_columns` must be one column of the data set. Received: "
            f"{list(columns)}. {_received(name, features)}"
        )
    classes = [key for key, kind in features.items() if isinstance(kind, _library().ClassLabel)]
    usual = [key for key in LABELS if key in features]
    chosen = [*columns, *usual, *classes][:1]
    if labeled and (not chosen or (not columns and not usual and len(classes) > 1)):
        raise ValueError(
            f"One column must hold the classes. {_received(name, features)}. Name it in "
            "data.label_columns"
        )
    return chosen[0] if chosen else None


def _received(name, features):
    kinds = {key: getattr(kind, "dtype", type(kind).__name__) for key, kind in features.items()}
    return f"Received: hf:{name} with {kinds}"


def _labels(name, opened, column, labeled) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """The names of the classes, and by split the class of each picture."""
    values = {key: np.full(len(split), NO_LABEL) for key, split in opened.items()}
    names: tuple[str, ...] = ()
    if column is not None:
        names, values = _classes(name, opened, column)
    if labeled:
        values = {key: labels for key, labels in values.items() if (labels != NO_LABEL).any()}
    for key, labels in values.items():
        (without,) = np.nonzero(labels == NO_LABEL)
        if len(without) and labeled:
            raise ValueError(
                f"Every picture must have a class. Received: hf:{name} {key}[{without[0]}] without "
                f"one, and {len(without)} in all. Name the column of the labels in "
                "data.label_columns, or learn without labels"
            )
        if len(without):
            return (), {key: np.zeros(len(split), "int32") for key, split in opened.items()}
    return names, values


def _classes(name, opened, column) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """As `_labels`, with `NO_LABEL` for pictures without a class."""
    feature = next(iter(opened.values())).features[column]
    cells = {
        key: split.select_columns([column]).with_format("arrow")[:].column(0)
        for key, split in opened.items()
    }
    if getattr(feature, "dtype", "") in TEXTS:
        texts = {key: column.to_pylist() for key, column in cells.items()}
        names = tuple(sorted({text for of_split in texts.values() for text in of_split if text}))
        numbers = {text: number for number, text in enumerate(names)}
        number = lambda text: numbers.get(text, NO_LABEL)
        return names, {key: np.array([*map(number, texts[key])], "int64") for key in texts}
    if not str(getattr(feature, "dtype", "")).startswith(("int", "uint")):
        raise ValueError(
            f"Classes must be numbers or texts. {_received(name, {column: feature})}. Name another "
            "column in data.label_columns"
        )
    values = {key: column.fill_null(NO_LABEL).to_numpy() for key, column in cells.items()}
    lowest = min(int(labels.min(initial=0)) for labels in values.values())
    highest = max(int(labels.max(initial=NO_LABEL)) for labels in values.values())
    names = tuple(getattr(feature, "names", None) or ())
    if lowest < NO_LABEL or highest >= (len(names) or MOST_CLASSES):
        raise ValueError(
            f"A class must be a number from 0 to {(len(names) or MOST_CLASSES) - 1}, or -1 for "
            f"none. Received: hf:{name} with {lowest if lowest < NO_LABEL else highest} in "
            f"{column!r}. Name another column in data.label_columns"
        )
    return names or tuple(map(str, range(highest + 1))), values


def _split(name, split, image, labels, channels, unreadable) -> Split:
    """The pictures of a split, whose names begin with `name`."""
    pictures = split.select_columns([image]).cast_column(image, _library().Image(decode=False))
    labels = as_labels(labels)

    def picture(i):
        value = pictures[i][image] or {}
        if value.get("bytes") is not None:
            return value["bytes"]
        if not value.get("path"):
            raise ValueError("the row has no picture")
        with open(value["path"], "rb") as file:
            return file.read()

    name_of = lambda i: f"{name}[{i}]"
    origin = Origin(
        files=lambda: [
            (os.path.basename(file["filename"]), file["filename"]) for file in split.cache_files
        ],
        name=name_of,
        channels=channels,
        unreadable=unreadable,
    )
    return Split(labels, encoded=lambda i: (picture(i), labels[i]), origin=origin)
