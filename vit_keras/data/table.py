"""Data sets in a CSV or Parquet table of paths and labels."""

import os
import pathlib

import numpy as np

from vit_keras import extras
from vit_keras.config import DataConfig
from vit_keras.data.dataset import HELD_OUT, Dataset, without_held_out
from vit_keras.data.held_out import hold_out
from vit_keras.data.image_files import from_files
from vit_keras.data.origin import UnreadableImages

COLUMNS = ("path", "label")
SPLITS = ("train", *HELD_OUT)


def load(path: str, channels: int, config: DataConfig) -> Dataset:
    """Opens a CSV or Parquet file with the columns path, label, and optionally split.

    Paths are relative to the table, and rows keep their order. Without a column split, or where
    that has no held-out rows, `config.test_percent` of each class is held out.

    Raises:
        FileNotFoundError: If there is no table at `path`.
        ValueError: If the table cannot be read, lacks a column or a value, names files that do not
            exist, or has classes without training images.
        ImportError: If PyArrow is not installed.
    """
    columns = _columns(path)
    root = os.path.dirname(os.path.abspath(path))
    files = [str(file) for file in columns["path"]]
    missing = [file for file in files if not os.path.isfile(os.path.join(root, file))]
    if missing:
        raise ValueError(
            f"The files of a table must exist. Received: {path!r}, which names "
            f"{len(missing)} that do not, such as {missing[:5]}. Paths are relative to {root!r}"
        )
    names = sorted(set(columns["label"]))  # numbers by value, text by letters
    order = {name: i for i, name in enumerate(names)}
    labels = np.array([order[label] for label in columns["label"]], "int32")
    membership, held_out_by = _membership(columns, config)
    _check_trained(path, membership, labels, names)
    unreadable = UnreadableImages(config.on_corrupt == "stop")
    splits = {}
    for split in sorted(set(membership.tolist())):
        rows = [i for i, name in enumerate(membership) if name == split]
        paths = [files[i] for i in rows]
        splits[split] = from_files(root, paths, labels[rows], channels, unreadable)
    return Dataset(f"table:{path}", splits, tuple(map(str, names)), unreadable, held_out_by)


def _membership(columns, config):
    """Returns each row's split, `(N,)` strings, and how held-out rows were chosen."""
    files, count = list(map(str, columns["path"])), len(columns["path"])
    names = [str(name) for name in columns.get("split", ["train"] * count)]
    membership = np.array([name.lower() if name.lower() in SPLITS else name for name in names])
    if "split" not in columns:
        lacks = "no column split"
    elif "train" in membership and without_held_out(set(membership.tolist()), config.test_split):
        lacks = "no row of the split test"
    else:
        return membership, ""
    (rows,) = np.nonzero(membership == "train")
    labels = columns["label"]
    held_out, held_out_by = hold_out(
        lacks, [files[i] for i in rows], [labels[i] for i in rows], config
    )
    membership[rows[held_out]] = "test"
    return membership, held_out_by


def _columns(path):
    """Reads the columns of a table as lists, by name."""
    pyarrow, csv, parquet = (
        extras.require(name, extra="data", purpose="Reading tables of images")
        for name in ("pyarrow", "pyarrow.csv", "pyarrow.parquet")
    )
    readers = {".csv": csv.read_csv, ".parquet": parquet.read_table}
    suffix = pathlib.Path(path).suffix.lower()
    if suffix not in readers:
        raise ValueError(f"`dataset` table:FILE needs a .csv or .parquet file. Received: {path!r}")
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


def _check_trained(path, membership, labels, names):
    """Raises ValueError unless there is a split train that has all classes."""
    if "train" not in membership:
        raise ValueError(
            f"{path!r} needs rows of the split train. Received: {sorted(set(membership.tolist()))}"
        )
    trained = set(labels[membership == "train"])
    untrained = [name for i, name in enumerate(names) if i not in trained]
    if untrained:
        raise ValueError(
            f"Every class must have training images. Received: {path!r}, which has {untrained} "
            "only in other splits"
        )
