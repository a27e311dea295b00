"""`hf:NAME`: data sets of the Hugging Face Hub, read by index with the library `datasets`."""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.boxes import FLAGGED, Annotated, with_boxes
from vit_keras.data.dataset import Source, in_sequence
from vit_keras.data.labels import no_labels, read_labels, text_of
from vit_keras.data.picture_files import read_file
from vit_keras.support import extras
from vit_keras.support.files import check_arrived

SAVED = ("dataset_dict.json", "state.json")  # files of `save_to_disk`
IMAGE, LABELS = "image", ("label", "labels")
KINDS = ("category", "categories", "label", "labels", "class", "classes")  # of objects
SIDES = ("height", "width")
NOTHING = "\0"  # no cell holds it


def load(name: str, config: DataConfig, task: str, labeled: bool) -> Source:
    """Opens a data set, which is downloaded and prepared first if necessary.

    Without a held-out split, `config.test_percent` of each class is held out; the pictures' numbers
    decide which. Splits in which no picture has a class are left out if classes are needed.

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
    rows = _library().concatenate_datasets([*opened.values()])
    images = [key for key, kind in rows.features.items() if isinstance(kind, _library().Image)]
    if not images:
        raise ValueError(f"A data set needs a column of images. {_received(name, rows.features)}")
    image = IMAGE if IMAGE in images else images[0]
    boxed = _object_column(rows, config, task)
    columns = () if boxed else _label_columns(name, rows.features, config, labeled)
    known = in_sequence(f"hf:{name}", {key: len(of_split) for key, of_split in opened.items()})
    if column := config.group_column:
        known["groups"] = [str(text_of(cell) or "") for cell in _cells(rows, column, True)]
    labels = no_labels(len(rows))
    if columns:
        are_numbers = task == "numbers" or (task == "auto" and len(columns) > 1)
        cells = {column: _cells(rows, column, are_numbers) for column in columns}
        order = getattr(_element(rows.features[columns[0]]), "names", ())
        told = dataclasses.replace(config, unknown=config.unknown or (NOTHING,))
        labels = read_labels(f"hf:{name}", cells, told, task, order)

    def files(indices):
        used = [split for split, of in known["splits"].items() if np.isin(of, indices).any()]
        paths = [file["filename"] for split in used for file in opened[split].cache_files]
        return [(os.path.basename(path), path) for path in paths]

    source = Source(f"hf:{name}", labels, _pictures(rows, image), files=files, **known)
    if boxed:
        pictures, order = _annotated(rows, boxed, source.name_of)
        source = with_boxes(source, "", pictures, order, "either")
    return source


def _library() -> Any:
    return extras.require("datasets")


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
        raise kind(f"hf:{name} cannot be opened ({error!r:.300})") from error
    return dict(opened) if isinstance(opened, dict) else {"train": opened}


def _label_columns(name, features, config, labeled) -> tuple[str, ...]:
    """Returns the columns of the labels, if any."""
    if config.label_columns:
        return tuple(config.label_columns)
    classes = [key for key, kind in features.items() if isinstance(kind, _library().ClassLabel)]
    usual = [key for key in LABELS if key in features]
    if labeled and not usual and len(classes) != 1:
        raise ValueError(
            "One column must hold the classes, or objects with a bbox field. "
            f"{_received(name, features)}. Name the column of the classes in data.label_columns"
        )
    return (*usual, *classes)[:1]


def _received(name, features):
    kinds = {key: getattr(kind, "dtype", type(kind).__name__) for key, kind in features.items()}
    return f"Received: hf:{name} with {kinds}"


def _element(feature):
    """Returns the type of a column, or of the items of its lists."""
    return getattr(feature, "feature", feature)


def _cells(rows, column, are_numbers=False) -> list:
    """Returns the cells of a column; numbers that stand for names become names.

    A negative number becomes None (no name), unless `are_numbers` and the column has no names.
    """
    cells = rows.select_columns([column]).with_format("arrow")[:].column(0).to_pylist()
    feature = _element(rows.features[column])
    if not str(getattr(feature, "dtype", "")).startswith(("int", "uint")):
        return cells
    names = getattr(feature, "names", None)
    if are_numbers and not names:
        return cells
    text = lambda k: None if k is None or k < 0 else names[k] if names else k
    return [[*map(text, cell)] if isinstance(cell, list) else text(cell) for cell in cells]


def _object_column(rows, config, task) -> str | None:
    """Returns the column of lists of objects with a bbox field; None if there is none."""
    if task not in ("auto", "boxes") or (task == "auto" and config.label_columns):
        return None
    kinds = {key: _element(kind) for key, kind in rows.features.items()}
    columns = [key for key, kind in kinds.items() if isinstance(kind, dict) and "bbox" in kind]
    return next(iter(columns), None)


def _annotated(rows, column, name_of) -> tuple[list[Annotated], Sequence[str]]:
    """Returns the annotations of each picture, and the names of the classes in order."""
    fields, pictures = _element(rows.features[column]), list[Annotated]()
    sides = SIDES if {*SIDES} <= {*rows.features} else ()
    kind = next((field for field in KINDS if field in fields), "")
    order = getattr(_element(fields.get(kind)), "names", ())
    for i, (cell, *said) in enumerate(zip(*(_cells(rows, c) for c in (column, *sides)))):
        where, items, objects = name_of(i), cell or [], list[tuple]()
        if isinstance(items, dict):  # a record of lists
            lists = (values or [] for values in items.values())
            items = [dict(zip(items, values)) for values in itertools.zip_longest(*lists)]
        for item in filter(None, items):
            box, value = item["bbox"] or [], item.get(kind)
            if order and isinstance(value, int):
                value = order[value] if value in range(len(order)) else None
            flat = {key.replace("_", "").lower(): value for key, value in item.items()}
            flags = (flag for flag, names in FLAGGED.items() for name in names if flat.get(name))
            objects.append((text_of(value), *box, next(flags, 0)))
        pictures.append(Annotated(where, "", "", objects, said or (0, 0)))
    return pictures, order


def _pictures(rows, image) -> Callable[[int], bytes]:
    """Returns a function that reads the bytes of the picture at an index."""
    pictures = rows.select_columns([image]).cast_column(image, _library().Image(decode=False))

    def picture(i):
        value = pictures[i][image] or {}
        held = value.get("bytes")
        return read_file(value.get("path") or "") if held is None else held

    return picture
