"""Data sets in a CSV or Parquet table of paths and labels."""

import os
import pathlib

import numpy as np

from vit_keras import extras
from vit_keras.config import DataConfig
from vit_keras.data.dataset import HELD_OUT, Dataset, without_held_out
from vit_keras.data.held_out import hold_out
from vit_keras.data.image_files import from_files
from vit_keras.data.label_kinds import LABEL_KINDS
from vit_keras.data.masks import load_rows
from vit_keras.data.origin import UnreadableImages
from vit_keras.data.table_labels import Labels, check_filled, label_columns, read_labels

SPLITS = ("train", *HELD_OUT)


def load(path: str, channels: int, config: DataConfig, task: str = "auto") -> Dataset:
    """Opens a CSV or Parquet file with the columns path, label, and optionally split.

    Paths are relative to the table, and rows keep their order. `config.label_columns` names other
    columns than label, and a column mask instead holds masks: see `masks.load_rows`. Without a
    column split, or where that has no held-out rows, `config.test_percent` of each class is held
    out.

    Raises:
        FileNotFoundError: If there is no table at `path`.
        ValueError: If the table cannot be read, lacks a column or a value, names files that do not
            exist, or has classes without training images.
        ImportError: If PyArrow is not installed.
    """
    columns, needed = _columns(path, config, task)
    if "mask" in needed:
        return load_rows(path, columns, _split_of_rows(columns), channels, config)
    root = os.path.dirname(os.path.abspath(path))
    files = [str(file) for file in columns["path"]]
    missing = [file for file in files if not os.path.isfile(os.path.join(root, file))]
    if missing:
        raise ValueError(
            f"The files of a table must exist. Received: {path!r}, which names "
            f"{len(missing)} that do not, such as {missing[:5]}. Paths are relative to {root!r}"
        )
    labels = read_labels(path, columns, config, task)
    membership, held_out_by = _membership(columns, labels, config)
    _check_trained(path, membership, labels)
    unreadable = UnreadableImages(config.on_corrupt == "stop")
    splits = {}
    for split in sorted(set(membership.tolist())):
        rows = [i for i, name in enumerate(membership) if name == split]
        paths = [files[i] for i in rows]
        splits[split] = from_files(root, paths, labels.values[rows], channels, unreadable)
    name = f"table:{path}"
    return Dataset(name, splits, labels.names, unreadable, held_out_by, labels.kind)


def _membership(columns, labels: Labels, config):
    """Returns each row's split, `(N,)` strings, and how held-out rows were chosen."""
    files, membership = list(map(str, columns["path"])), _split_of_rows(columns)
    if "split" not in columns:
        lacks = "no column split"
    elif "train" in membership and without_held_out(set(membership.tolist()), config.test_split):
        lacks = "no row of the split test"
    else:
        return membership, ""
    (rows,) = np.nonzero(membership == "train")
    kind = LABEL_KINDS[labels.kind]
    strata = kind.strata(labels.values[rows])
    held_out, held_out_by = hold_out(lacks, [files[i] for i in rows], strata, config, kind.unit)
    membership[rows[held_out]] = "test"
    return membership, held_out_by


def _split_of_rows(columns) -> np.ndarray:
    """The split of each row, `(N,)` strings; "train" without a column split."""
    names = map(str, columns.get("split", ["train"] * len(columns["path"])))
    return np.array([name.lower() if name.lower() in SPLITS else name for name in names])


def _needed(columns, config: DataConfig, task: str) -> tuple[str, ...]:
    """The columns that a table must have: path and mask, or path and the columns of labels."""
    labels = label_columns(config)
    if task == "masks" or (task == "auto" and "mask" in columns and not {*labels} & {*columns}):
        return "path", "mask"
    return "path", *labels


def _columns(path: str, config: DataConfig, task: str):
    """Reads the columns of a table as lists, by name, and says which ones it needs."""
    pyarrow, csv, parquet = (
        extras.require(name, extra="tables", purpose="Reading tables of images")
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
    needed = _needed(columns, config, task)
    lacking = [name for name in needed if name not in columns]
    if lacking:
        raise ValueError(
            f"{path!r} needs the columns {' and '.join(needed)}. Received: {list(columns)}, "
            f"without {' and '.join(lacking)}. Name other columns of labels in data.label_columns"
        )
    for name in {"path", "split", *({"mask"} & {*needed})} & set(columns):
        check_filled(path, name, columns[name])
    return columns, needed


def _check_trained(path, membership, labels: Labels):
    """Raises ValueError unless there is a split train that has all classes."""
    if "train" not in membership:
        raise ValueError(
            f"{path!r} needs rows of the split train. Received: {sorted(set(membership.tolist()))}"
        )
    counts = LABEL_KINDS[labels.kind].counts(labels.values[membership == "train"], labels.names)
    untrained = [name for name, count in counts.items() if not count]
    if untrained:
        raise ValueError(
            f"All {labels.kind} must have training images. Received: {path!r}, which has "
            f"{untrained} only in other splits"
        )
