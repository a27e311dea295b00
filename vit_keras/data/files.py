"""Data sets of image files: a folder with one folder a class, or a table of paths and labels."""

import hashlib
import os
import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from vit_keras.config import DataConfig
from vit_keras.data import images
from vit_keras.data.splits import HELD_OUT, Dataset, Origin, Split, Unreadable

COLUMNS = ("path", "label")


def from_files(
    root: str, paths: Sequence[str], labels: np.ndarray, channels: int, unreadable: Unreadable
) -> Split:
    """A split of the image files at `paths`, relative to the folder `root`."""
    places = [os.path.join(root, path) for path in paths]
    labels = np.asarray(labels, "int32")
    known, files = tf.constant(labels), tf.constant(places)

    def encoded(index):
        return tf.io.read_file(tf.gather(files, index)), tf.gather(known, index)

    origin = Origin(
        manifest=lambda: [f"{path} {os.path.getsize(at)}" for path, at in zip(paths, places)],
        name=lambda index: places[index],
        reason=lambda index: _reason(places[index], channels),
        channels=channels,
        unreadable=unreadable,
    )
    return Split(labels, encoded=encoded, origin=origin)


def _reason(path, channels):
    try:
        images.read_image(path, channels)
    except (FileNotFoundError, ValueError) as error:
        return str(error).removesuffix(".")
    return f"{path!r} could not be read at first"


def folder(path: str, channels: int, config: DataConfig) -> Dataset:
    """`path`/train/CLASS/x.jpg with test, validation or val beside it, or `path`/CLASS/x.jpg.

    Without a split of its own, `config.test_percent` of each class is held out. Images stand in an
    order that follows from their names alone and mixes the classes, so that a slice is a sample.
    """
    if not os.path.isdir(path):
        raise ValueError(f"`dataset` folder:PATH needs a folder. Received: {path!r}")
    names = _folders(path)
    unreadable = Unreadable(config.on_corrupt == "stop")
    make = lambda root, found, classes: from_files(
        root, found, [classes.index(_class_of(f)) for f in found], channels, unreadable
    )
    if "train" not in names:
        found = _images(path, names)
        held_out = choose_held_out(found, [_class_of(f) for f in found], config)
        parts = {"train": ~held_out, "test": held_out}
        splits = {
            split: make(path, [f for f, inside in zip(found, chosen) if inside], names)
            for split, chosen in parts.items()
            if chosen.any()
        }
        return Dataset(f"folder:{path}", splits, tuple(names), unreadable)
    classes, splits = _folders(os.path.join(path, "train")), {}
    for split in ("train", *(name for name in HELD_OUT if name in names)):
        root = os.path.join(path, split)
        there = _folders(root)
        unknown = [name for name in there if name not in classes]
        if unknown:
            raise ValueError(
                f"Every class of {split!r} must be one of 'train'. Received: {unknown} in {root!r}"
            )
        splits[split] = make(root, _images(root, there), classes)
    return Dataset(f"folder:{path}", splits, tuple(classes), unreadable)


def table(path: str, channels: int, config: DataConfig) -> Dataset:
    """A CSV or Parquet file with columns path, label and, if wanted, split.

    Paths are relative to the table. Rows keep their order. Without a column split,
    `config.test_percent` of each class is held out.
    """
    columns = _columns(path)
    root = os.path.dirname(os.path.abspath(path))
    files = [str(file) for file in columns["path"]]
    missing = [file for file in files if not os.path.isfile(os.path.join(root, file))]
    if missing:
        raise ValueError(
            f"{path!r} names {len(missing)} files that do not exist, such as {missing[:5]}. Paths "
            f"are relative to {root!r}"
        )
    names = sorted(set(columns["label"]))  # numbers by value, text by letters
    order = {name: i for i, name in enumerate(names)}
    labels = np.array([order[label] for label in columns["label"]], "int32")
    parts = columns.get("split")
    if parts is None:
        held_out = choose_held_out(files, columns["label"], config)
        parts = np.where(held_out, "test", "train")
    _check_trained(path, np.asarray(parts), labels, names)
    unreadable = Unreadable(config.on_corrupt == "stop")
    splits = {}
    for split in sorted(set(parts)):
        rows = [i for i, part in enumerate(parts) if part == split]
        paths = [files[i] for i in rows]
        splits[str(split)] = from_files(root, paths, labels[rows], channels, unreadable)
    return Dataset(f"table:{path}", splits, tuple(map(str, names)), unreadable)


def choose_held_out(paths: Sequence[str], classes: Sequence, config: DataConfig) -> np.ndarray:
    """Which images are held out, `(N,)` bool: `test_percent` of each class, by `split_seed`.

    An image's place follows from its path and the seed, whatever else the folder holds.
    """
    held_out, by_class = np.zeros(len(paths), bool), {}
    for i, name in enumerate(classes):
        by_class.setdefault(name, []).append(i)
    for members in by_class.values():
        count = min(round(len(members) * config.test_percent / 100), len(members) - 1)
        if config.test_percent and not count:
            count = int(len(members) > 1)
        members.sort(key=lambda i: _hash(f"{config.split_seed}/{paths[i]}"))
        held_out[members[:count]] = True
    return held_out


def _hash(text):
    return hashlib.sha256(text.encode()).digest()


def _class_of(path):
    return path.split(os.sep)[0]


def _folders(path):
    return sorted(e.name for e in os.scandir(path) if e.is_dir() and not e.name.startswith("."))


def _images(root, classes):
    """Paths of the images of all classes, relative to `root`; ValueError where one has none."""
    found, empty = [], []
    for name in classes:
        inside = [
            os.path.relpath(os.path.join(at, file), root)
            for at, _, files in os.walk(os.path.join(root, name), followlinks=True)
            for file in files
            if file.lower().endswith(images.SUFFIXES) and not file.startswith(".")
        ]
        found += inside
        empty += [] if inside else [name]
    kinds = ", ".join(images.SUFFIXES)
    if not found:
        raise ValueError(f"A folder of images holds CLASS/x of {kinds}. Received: {root!r}, none")
    if empty:
        raise ValueError(f"Every class needs images ({kinds}). Received: none in {root!r}: {empty}")
    return sorted(found, key=_hash)


def _columns(path):
    """The columns of a table as lists, by name; ValueError that says what is wrong with it."""
    import pyarrow
    from pyarrow import csv, parquet

    readers = {".csv": csv.read_csv, ".parquet": parquet.read_table}
    suffix = pathlib.Path(path).suffix.lower()
    if suffix not in readers:
        raise ValueError(f"`dataset` table:FILE needs a .csv or .parquet. Received: {path!r}")
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no table at {path!r}.")
    try:
        columns = readers[suffix](path).to_pydict()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path!r} cannot be read as a {suffix} table ({error})") from error
    lacking = [name for name in COLUMNS if name not in columns]
    if lacking:
        raise ValueError(
            f"{path!r} needs the columns path and label. Received: {list(columns)}, without "
            f"{' and '.join(lacking)}"
        )
    for name in {*COLUMNS, "split"} & set(columns):
        rows = [i for i, value in enumerate(columns[name]) if value is None or value == ""]
        if rows:
            raise ValueError(
                f"Every row of {path!r} needs a {name}. Received: {len(rows)} without one, such "
                f"as row {rows[0]}"
            )
    return columns


def _check_trained(path, parts, labels, names):
    """Raises ValueError unless there is a split train that has all classes."""
    if "train" not in parts:
        raise ValueError(
            f"{path!r} needs rows of the split train. Received: {sorted(set(parts.tolist()))}"
        )
    trained = set(labels[parts == "train"])
    untrained = [name for i, name in enumerate(names) if i not in trained]
    if untrained:
        raise ValueError(
            f"Every class must have training images. Received: {untrained} of {path!r} in "
            "other splits alone"
        )
