"""`hf:NAME`: data sets of the Hugging Face Hub, read by index with the library `datasets`."""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.boxes import FLAGGED, Annotated, Cleaned, clean, known_sides
from vit_keras.data.dataset import Dataset, Split, as_labels, read_file
from vit_keras.data.held_out import hold_out
from vit_keras.data.labels import NO_CLASS, Labels, no_labels, read_labels, text_of
from vit_keras.support import extras
from vit_keras.support.checks import is_number, short
from vit_keras.support.files import check_arrived

SAVED = ("dataset_dict.json", "state.json")  # files of `save_to_disk`
IMAGE, LABELS = "image", ("label", "labels")
KINDS = ("category", "categories", "label", "labels", "class", "classes")  # of objects
SIDES = ("height", "width")
NOTHING = "\0"  # no cell holds it


def load(name: str, config: DataConfig, task: str = "auto", labeled: bool = True) -> Dataset:
    """Opens a data set, which is downloaded and prepared first if necessary.

    Without a held-out split, `config.test_percent` of each class is held out by the numbers of the
    pictures. Splits in which no picture has a class are left out if classes are needed.

    Args:
        name: `USER/NAME`, with `@REVISION` and `:CONFIG` if needed, or a folder: one with the files
            of a data set, or one that `save_to_disk` wrote.
        config: The column of the labels and the held-out share.
        task: What the labels are, as for `data.load`.
        labeled: Whether all pictures must have a class. If not, a data set in which some lack one
            has no `class_names`.

    Raises:
        FileNotFoundError: If there is no such data set.
        ValueError: If it cannot be opened, or has no pictures or no classes. The message gives its
            columns.
        ImportError: If `datasets` or Pillow is not installed.
    """
    opened = _opened(name)
    features = next(iter(opened.values())).features
    image, boxed = _image_column(name, features), _object_column(name, features, config, task)
    columns = () if boxed else _label_columns(name, features, config, labeled)
    boxes, end, splits, warnings = None, 0, {}, tuple[str, ...]()
    if boxed:
        boxes, names, notes, warnings = _boxes(name, opened, image, boxed)
        labels = Labels("boxes", names, boxes.present(len(names)), notes)
    else:
        labels = _labels(name, opened, columns, config, task, labeled)
    for key, rows in opened.items():
        numbers = np.arange(end, end := end + len(rows))
        values = labels.values[numbers]
        known = values != NO_CLASS if values.ndim == 1 else ~np.isnan(values).all(axis=1)
        if labeled and not known.any():
            continue  # a test split whose labels are withheld
        if labeled and not known.all():
            (without,) = np.nonzero(~known)
            raise ValueError(
                f"Every picture must have a label. Received: hf:{name} {key}[{without[0]}] without "
                f"one, and {len(without)} in all. Name the column of the labels in "
                "data.label_columns, or learn without labels"
            )
        groups = config.group_column and [
            str(text_of(cell) or "") for cell in _cells(rows, config.group_column)
        ]
        of_split = boxes and boxes.part(numbers)
        splits[key] = _split(f"hf:{name} {key}", rows, image, values, groups, of_split)
    known = {"kind": labels.kind, "notes": labels.notes, "warnings": warnings}
    dataset = Dataset(f"hf:{name}", splits, labels.names, **known)
    return hold_out(dataset, "no held-out split", config)


def _library() -> Any:
    return extras.require("datasets", extra="hf", purpose="Reading Hugging Face's data sets")


def _opened(name):
    """Returns the splits of a data set by name, as `datasets.Dataset`."""
    library, is_folder = _library(), os.path.isdir(name)
    place, _, variant = (os.path.abspath(name), "", "") if is_folder else name.partition(":")
    path, _, revision = (place, "", "") if is_folder else place.partition("@")
    try:
        if any(pathlib.Path(path, file).is_file() for file in SAVED):
            opened = library.load_from_disk(path)
        else:
            opened = library.load_dataset(path, variant or None, revision=revision or None)
    except Exception as error:  # each kind of file, and the network, raises its own errors
        for file in pathlib.Path(path).rglob("*.parquet"):
            check_arrived(file)
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
        raise kind(
            f"hf:{name} cannot be opened ({type(error).__name__}: {error!s:.300})"
        ) from error
    return dict(opened) if isinstance(opened, dict) else {"train": opened}


def _image_column(name, features):
    images = [key for key, kind in features.items() if isinstance(kind, _library().Image)]
    if not images:
        raise ValueError(f"A data set needs a column of images. {_received(name, features)}")
    return IMAGE if IMAGE in images else images[0]


def _label_columns(name, features, config, labeled) -> tuple[str, ...]:
    """Returns the columns of the labels; empty without one."""
    if config.label_columns:
        return tuple(config.label_columns)
    classes = [key for key, kind in features.items() if isinstance(kind, _library().ClassLabel)]
    usual = [key for key in LABELS if key in features]
    if labeled and not usual and len(classes) != 1:
        raise ValueError(
            f"One column must hold the classes. {_received(name, features)}. Name it in "
            "data.label_columns"
        )
    return (*usual, *classes)[:1]


def _received(name, features):
    kinds = {key: getattr(kind, "dtype", type(kind).__name__) for key, kind in features.items()}
    return f"Received: hf:{name} with {kinds}"


def _element(feature):
    """Returns the type of a column, or of the items of its lists."""
    return getattr(feature, "feature", feature)


def _cells(rows, column) -> list:
    """Returns the cells of a column; numbers that stand for names become names, and -1 None."""
    cells = rows.select_columns([column]).with_format("arrow")[:].column(0).to_pylist()
    feature = _element(rows.features[column])
    if not str(getattr(feature, "dtype", "")).startswith(("int", "uint")):
        return cells
    names = getattr(feature, "names", None)
    text = lambda k: None if k is None or k < 0 else names[k] if names else k
    return [[*map(text, cell)] if isinstance(cell, list) else text(cell) for cell in cells]


def _labels(name, opened, columns, config, task, labeled) -> Labels:
    """Returns the labels of all splits in order; no classes at all if one is unknown."""
    none = no_labels(sum(map(len, opened.values())))
    if not columns:
        return none
    cells = {c: [v for rows in opened.values() for v in _cells(rows, c)] for c in columns}
    order = getattr(_element(next(iter(opened.values())).features[columns[0]]), "names", None)
    config = dataclasses.replace(config, unknown=config.unknown or (NOTHING,))
    labels = read_labels(f"hf:{name}", cells, config, task, order)
    if not labeled and labels.kind == "classes" and (labels.values == NO_CLASS).any():
        return none
    return labels


def _object_column(name, features, config, task) -> str | None:
    """Returns the column of lists of objects with a field bbox; None for another task."""
    if task not in ("auto", "boxes") or (task == "auto" and config.label_columns):
        return None
    kinds = {key: _element(kind) for key, kind in features.items()}
    columns = [key for key, kind in kinds.items() if isinstance(kind, dict) and "bbox" in kind]
    if task == "boxes" and not columns:
        raise ValueError(f"A column must hold objects with a bbox. {_received(name, features)}")
    return next(iter(columns), None)


def _boxes(name, opened, image, column) -> Cleaned:
    """Reads the boxes of the pictures of all splits in order."""
    pictures, places = list[Annotated](), list[tuple]()
    for key, rows in opened.items():
        fields = _element(rows.features[column])
        sides = SIDES if {*SIDES} <= {*rows.features} else ()
        kind = next((field for field in KINDS if field in fields), "")
        order = getattr(_element(fields.get(kind)), "names", ())
        places += zip(itertools.repeat(_pictures(rows, image)), range(len(rows)))
        for i, (cell, *said) in enumerate(zip(*(_cells(rows, c) for c in (column, *sides)))):
            where = f"hf:{name} {key}[{i}]"
            objects = [_object(where, item, kind, order) for item in _items(where, cell)]
            pictures.append(Annotated(where, "", key, objects, known_sides(*said or (0,))))
    read = lambda number: places[number][0](places[number][1])
    return clean(pictures, read, order, is_sure=False)


def _items(where, cell) -> list[dict]:
    """Returns the objects in a cell, which is a list of records or a record of lists."""
    if isinstance(cell, list):
        return [item for item in cell if item]
    columns = {key: values or [] for key, values in (cell or {}).items()}
    if len({*map(len, columns.values())}) > 1:
        raise ValueError(
            f"The lists of objects must have equal lengths. Received: {short(cell)} in {where}"
        )
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


def _object(where, item, kind, order) -> tuple:
    """Returns the class, the four numbers, and the flag of an object."""
    box, value = item["bbox"] or [], item.get(kind)
    if order and isinstance(value, int):
        value = order[value] if value in range(len(order)) else None
    if len(box) != 4 or not all(map(is_number, box)) or value is None:
        raise ValueError(
            "An object must have a class and four numbers in bbox. Received: "
            f"{short(item)} in {where}"
        )
    flat = {key.replace("_", "").lower(): value for key, value in item.items()}
    flags = (flag for flag, names in FLAGGED.items() for name in names if flat.get(name))
    return str(text_of(value)), *box, next(flags, 0)


def _pictures(split, image) -> Callable[[int], bytes]:
    """Returns a function that reads the bytes of the picture at an index."""
    pictures = split.select_columns([image]).cast_column(image, _library().Image(decode=False))

    def picture(i):
        value = pictures[i][image] or {}
        if value.get("bytes") is not None:
            return value["bytes"]
        if not value.get("path"):
            raise ValueError("the row has no picture")
        return read_file(value["path"])

    return picture


def _split(name, split, image, values, groups, boxes) -> Split:
    """Makes the split of a data set; the names of its pictures begin with `name`."""
    values, picture = as_labels(values), _pictures(split, image)
    labels = boxes or values
    paths = [file["filename"] for file in split.cache_files]
    return Split(
        values,
        encoded=lambda i: (picture(i), labels[i]),
        name=lambda i: f"{name}[{i}]",
        files=lambda: [(os.path.basename(path), path) for path in paths],
        groups=groups,
        sides=boxes and boxes.sides,
    )
