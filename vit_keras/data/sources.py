"""Opens data sets by name, and checks that a resumed run has the same data."""

import dataclasses
import hashlib
import json
import math
import os
import pathlib
import re
import unicodedata
from collections.abc import Callable
from typing import Any, TypedDict

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data import files, shards, table, tfds
from vit_keras.data.dataset import Dataset, Source, as_labels, count_classes, in_sequence
from vit_keras.data.depth import LEAST_OF_16, as_array
from vit_keras.data.held_out import open_source
from vit_keras.data.labels import Labels
from vit_keras.data.picture_files import SUFFIXES, type_in_header
from vit_keras.support import extras
from vit_keras.support.checks import differences, read_json, short, with_checksums
from vit_keras.support.files import sha256, write_text
from vit_keras.support.machine import read_ahead
from vit_keras.support.tasks import KINDS


def _digits(*_: Any) -> Source:
    """scikit-learn's digits: 1797 images `(8, 8, 1)` of the UCI test set; 360 are held out."""
    data = extras.require("sklearn.datasets").load_digits()
    rows = extras.require("sklearn.model_selection").train_test_split(
        np.arange(len(data.images)), test_size=360, stratify=data.target, random_state=0
    )
    order = np.concatenate(rows)
    images = np.round(data.images[order] * (255 / 16)).astype("uint8")[..., None]  # ink is 0 to 16
    labels = Labels("classes", tuple("0123456789"), as_labels(data.target[order]))
    known = in_sequence("digits", dict(zip(("train", "test"), map(len, rows))))
    return Source("digits", labels, images.__getitem__, **known)


# By the prefix before the colon: what follows it, if anything, and a function of that text and of
# `config`, `task` and `labeled` as in `load`.
SOURCES: dict[str, tuple[str, Callable[[str, DataConfig, str, bool], Source]]] = {
    "digits": ("", _digits),
    "folder": ("PATH", files.load),
    "table": ("FILE", table.load),
    "shards": ("PATTERN", shards.load),
    "hf": ("NAME", table.load_hub),
    "tfds": ("NAME", tfds.load),
    "vtab": ("TASK", tfds.load_vtab),
}
_SHARD = re.compile(r".*\.(tar|tgz|tar\.gz|tfrecords?)\S*", re.IGNORECASE)
# Possible meanings of a name without a prefix; the first match wins.
LIKELY: dict[str, Callable[[str], Any]] = {
    "shards": lambda name: _SHARD.fullmatch(name) or os.path.isfile(f"{name}/shards.json"),
    "folder": os.path.isdir,
    "table": re.compile(r".*\.(csv|tsv|txt|parquet)", re.IGNORECASE).fullmatch,
    "hf": re.compile(r"[\w-]+/[\w.-]+").fullmatch,
}


def with_kind(name: str) -> str:
    """Adds the likely kind to a name without one, such as `folder:photos` for `photos`.

    Example:
        >>> with_kind("birds.csv"), with_kind("ylecun/mnist"), with_kind("digits")
        ('table:birds.csv', 'hf:ylecun/mnist', 'digits')
    """
    likely = (f"{kind}:{name}" for kind, holds in LIKELY.items() if holds(name))
    return name if is_dataset(name) else next(likely, name)


def is_dataset(name: str) -> bool:
    """Whether a name has the form of a data set's name, such as `digits` or `folder:photos`."""
    kind, _, rest = name.partition(":")
    return kind in SOURCES and bool(rest) == bool(SOURCES[kind][0])


def load(
    name: str,
    channels: int,
    config: DataConfig | None = None,
    task: str = "auto",
    labeled: bool = True,
) -> Dataset:
    """Opens a data set.

    Args:
        name: `digits`, or one of the prefixes in `SOURCES` and a place, such as `folder:PATH`. The
            path of an existing folder, table or shard needs no prefix.
        channels: 1 for grayscale, 3 for RGB images, or another number.
        config: The levels and bands to read, the folder of TensorFlow Datasets, the images to hold
            out, and what to do with unreadable ones.
        task: What the labels are: a name in `vit_keras.support.tasks.KINDS`, or "auto" to follow
            the data set. Folders and tables may have several labels; tables may have numbers.
        labeled: Whether the pictures must have labels. If not, a folder may hold pictures outside
            the folders of classes, and shards and Hugging Face data sets may hold pictures without
            a class; the data set then has no `class_names`.

    Raises:
        ValueError: If the name is unknown, or if the data set does not suit the task.
        FileNotFoundError: If the name leads to a file that does not exist.
        ImportError: If a package that this kind of data set needs is not installed.

    Example:
        ```python
        dataset = data.load("folder:pictures", channels=3)
        train, test = dataset.split("train"), dataset.split("test")
        ```
    """
    if os.path.exists(name):
        name = with_kind(name)
    if not is_dataset(name):
        forms = (f"{kind}:{place}" if place else kind for kind, (place, _) in SOURCES.items())
        likely = with_kind(name)
        raise ValueError(
            f"`dataset` must be one of {', '.join(forms)}. Received: dataset={name!r}"
            + (f". Did you mean {likely}?" if likely != name else "")
        )
    extras.check("PIL")
    config, (kind, _, rest) = config or DataConfig(), name.partition(":")
    source = SOURCES[kind][1](rest, config, task, labeled)
    dataset = open_source(source, channels, config, labeled)
    if kind in ("folder", "table"):
        _check_classes(dataset)
    if (labeled or dataset.class_names) and task not in ("auto", dataset.kind):
        raise ValueError(
            f"The labels of {name!r} are {dataset.kind}. Received: task={task!r}. Labels come from "
            "folders and tables, numbers from tables, masks and boxes from their files or columns"
        )
    least = 2 if KINDS[dataset.kind].output == "softmax" else 1
    if (labeled or dataset.class_names) and len(dataset.class_names) < least:
        raise ValueError(
            f"A data set of {dataset.kind} needs {least} or more names. Received: {name!r} with "
            f"{list(dataset.class_names)}"
        )
    return dataset


def _check_classes(dataset: Dataset) -> None:
    """Checks the names of the classes of a folder or a table, and that each has training images."""
    names, kind = dataset.class_names, dataset.kind
    controls = lambda name: {*map(unicodedata.category, name)} & {"Cc", "Cs", "Zl", "Zp"}
    if broken := [name for name in names if not name or controls(name)]:
        raise ValueError(
            f"The name of a class must be text on one line. Received: {broken[:5]} in "
            f"{dataset.name!r}. Rename it; in a table, look for an unclosed quote"
        )
    if kind in ("masks", "boxes") or "train" not in dataset.splits:
        return
    train = count_classes(dataset, {"train": dataset.splits["train"]})["train"]
    if untrained := [name for name in names if not train[name]]:
        raise ValueError(
            f"All {kind} must have training images. Received: {dataset.name!r} without any for "
            f"{untrained}. Add some, or leave out these {kind}"
        )


DEEP = (".png", ".tif", ".tiff", ".npy")  # pictures that may have more than 8 bits
SAMPLE = 64  # pictures to look at in a split whose file names do not tell the depth


def complete_levels(config: DataConfig, dataset: Dataset) -> DataConfig:
    """Replaces "auto" in `config.levels` with the levels of the whole data set.

    The value is float if any picture has floats. If any has more than 8 bits, it is 4095, or 65535
    if a level is above 4095; 16-bit pictures are read until one has such a level. Otherwise, it is
    255.

    Some file names imply 8 bits, such as those of JPEGs; headers give the depth of other files. In
    shards and other data sets without file names, 64 evenly spaced pictures of each split are
    examined. Unreadable pictures are left out.

    Args:
        config: The configuration of the data.
        dataset: The data set.

    Example:
        >>> data.complete_levels(DataConfig(), data.load("digits", 1)).levels
        255
    """
    if config.white is not None:
        return config

    def candidates(split):
        suffix = lambda i: os.path.splitext(split.name(i))[1].lower()
        if len(split) and suffix(0) in SUFFIXES:
            return [i for i in range(len(split)) if suffix(i) in DEEP]
        return range(0, len(split), -(-len(split) // SAMPLE) or 1)

    seen: set[float] = {255}
    jobs = [(split, i) for split in dataset.splits.values() for i in candidates(split)]
    seen.update(read_ahead(lambda job: _white(*job, seen), jobs))
    levels: Any = "float" if math.inf in seen else max(seen)
    return dataclasses.replace(config, levels=levels)


def _white(split, index, seen) -> float:
    """Returns the level of white that a picture needs; infinity for floats.

    If 65535 was seen, the level of pictures with more than 8 bits need not be read.
    """
    try:
        name = split.name(index)
        if name.lower().endswith(".png") and os.path.isfile(name):
            with open(name, "rb") as file:
                kind = type_in_header(file.read(32))  # enough to know the depth
        else:
            kind = type_in_header(split.encoded(index))
        if kind == "uint16" and 65535 not in seen:
            highest = int(as_array(split.read_as(None).decoded(index)[0]).max())
            seen.add(65535 if highest >= LEAST_OF_16 else 4095)
        return {"uint8": 255, "float32": math.inf}.get(kind, 4095)
    except Exception:  # the run reports that, or takes another picture
        return 255


RECORD = "dataset.json"
REMEDY = "Restore it, or begin another run with another --workdir"
MOST_READ_BYTES = 2**30  # of all files; reading them from memory takes 3 s


class Recorded(TypedDict):
    """The content of `dataset.json`."""

    classes: list[str]
    images: dict[str, int]
    sha256: dict[str, str]


def fingerprint(dataset) -> dict[str, Any]:
    """Summarizes a data set.

    Returns:
        The names of the classes; the number of images per split and class; and for each split, a
        SHA-256 of its files' names, sizes and bytes and of its labels. A split of masks has a
        single number of images, since counting by class would mean reading all masks. If the
        files have more than `MOST_READ_BYTES`, their bytes are not read.
    """

    def sized(split):
        size = lambda path: os.path.getsize(path) if os.path.isfile(path) else -1  # -1 on a server
        named = split.source.files(split.indices) if split.source.files else ()
        return [(file, path, size(path)) for file, path in named]

    files = {name: sized(split) for name, split in dataset.splits.items()}
    is_read = sum(size for rows in files.values() for *_, size in rows) <= MOST_READ_BYTES
    counts, digests = dict[str, int](), dict[str, str]()
    for name, split in dataset.splits.items():
        of_split = {"all": len(split)}
        if split.labels_are_known and dataset.class_names:
            of_split = count_classes(dataset, {name: split})[name]
        counts |= {f"{name}/{of}": count for of, count in of_split.items()}
        lines = [
            f"{file} {size} {_content(path) if is_read else ''}" for file, path, size in files[name]
        ]
        values = split.labels.tobytes() if split.labels_are_known else b""
        digests[name] = hashlib.sha256(os.fsencode("\n".join(lines)) + values).hexdigest()
    return {"classes": list(dataset.class_names), "images": counts, "sha256": digests}


def _content(path) -> str:
    try:
        return sha256(path) if os.path.isfile(path) else "no file"
    except OSError:  # a run that reads it reports that
        return "unreadable"


def check_unchanged(dataset, folder) -> None:
    """Writes `dataset.json` to a run's folder, or compares the data set with an existing one.

    Raises:
        ValueError: If classes, numbers of images, files, or `dataset.json` itself have changed; the
            message lists the changes.
        FileNotFoundError: If the run has checkpoints, but no `dataset.json`.

    Example:
        ```python
        dataset = data.load("folder:photos", channels=3)
        data.check_unchanged(dataset, "runs/mine")  # the first time, writes runs/mine/dataset.json
        ```
    """
    file, current = pathlib.Path(folder) / RECORD, fingerprint(dataset)
    if not file.exists() and not any(file.parent.glob("checkpoints/step_*")):
        write_text(file, json.dumps(with_checksums(current), indent=1))
        return
    if changes := _changes(read_json(file, Recorded, REMEDY), current):
        raise ValueError(
            f"{dataset.name!r} has changed since the run in {str(folder)!r} began "
            f"({'; '.join(changes)}). Restore the data, or begin another run with another --workdir"
        )


def recorded_classes(folder) -> list[str]:
    """Returns the classes that `check_unchanged` recorded in a run's folder.

    Raises:
        FileNotFoundError: If nothing is recorded there.
        ValueError: If the record is damaged.

    Example:
        >>> data.check_unchanged(data.load("digits", channels=1), folder)
        >>> recorded_classes(folder)[:3]
        ['0', '1', '2']
    """
    return read_json(pathlib.Path(folder) / RECORD, Recorded, REMEDY)["classes"]


def _changes(recorded, current):
    """Describes the differences between two fingerprints."""
    then, here = recorded["images"], current["images"]
    changes = differences(then, here, {**then, **here})
    if not changes and recorded["classes"] != current["classes"]:
        changes = [f"classes: {short(recorded['classes'])} there, {short(current['classes'])} here"]
    before, now = recorded["sha256"], current["sha256"]
    changed = [split for split in {**before, **now} if before.get(split) != now.get(split)]
    files = "different labels, or different names, sizes or contents of files"
    return [*changes, *(f"{split}: {files}" for split in changed)]
