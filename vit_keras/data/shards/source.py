"""`shards:PATTERN`: labeled pictures by index in tar, Parquet, TFRecord or ArrayRecord files."""

import dataclasses
import os

import numpy as np
import tensorflow as tf

from vit_keras import extras
from vit_keras.config import DataConfig
from vit_keras.data import tf_images
from vit_keras.data.dataset import Dataset, without_held_out
from vit_keras.data.held_out import hold_out_by_number
from vit_keras.data.origin import Origin, UnreadableImages
from vit_keras.data.shards.formats import FORMATS
from vit_keras.data.shards.index import NO_LABEL, Index, open_index
from vit_keras.data.shards.places import Shards, find_shards
from vit_keras.data.shards.records import Reader, damaged
from vit_keras.data.shards.remote import is_remote
from vit_keras.data.shards.shard_files import Shard, ShardFiles
from vit_keras.data.splits import Split


@dataclasses.dataclass(frozen=True)
class Records:
    """What reads the records of a data set: their places, their files, and the format's reader."""

    index: Index
    files: ShardFiles
    read: Reader


def load(
    pattern: str, channels: int, config: DataConfig, task: str = "auto", labeled: bool = True
) -> Dataset:
    """Opens shards: see `find_shards` for the pattern.

    Records have the order of the shards, and in each the order of the file. Without a held-out
    split, `config.test_percent` of each class is held out by the numbers of the records.

    Args:
        pattern: The shards.
        channels: 1 for grayscale or 3 for RGB.
        config: Says the column of the labels, the held-out share, and what happens to unreadable
            pictures.
        task: Shards have classes alone.
        labeled: Whether all pictures must have a class. Without, those of shards in which some
            have none are a data set without `class_names`.

    Raises:
        FileNotFoundError: If a shard does not exist.
        ValueError: If a shard or its index is damaged, or if a picture has no class. The message
            names the file.
        ImportError: If a package for the format is not installed.
    """
    extras.check("PIL", extra="data", purpose="Reading pictures")
    shards = find_shards(pattern)
    column = _column(config)
    flat = [shard for of_split in shards.splits.values() for shard in of_split]
    files = ShardFiles(flat, config.shard_cache_gb)
    index = open_index(files, shards.kind, column)
    names = _class_names(shards, files, index, column, labeled)
    labels = np.array(index.labels) if names else np.zeros(len(index.labels), "int32")
    unreadable = UnreadableImages(config.on_corrupt == "stop")
    records = Records(index, files, FORMATS[shards.kind].reader(files))
    files.start_copying()
    splits, first = {}, 0
    for name, of_split in shards.splits.items():
        bounds = index.starts[[first, first + len(of_split)]].tolist()
        splits[name] = _split(records, labels, bounds, of_split, channels, unreadable)
        first += len(of_split)
    held_out_by = ""
    lacks_test = "train" in splits and without_held_out(splits, config.test_split)
    if lacks_test and len(splits["train"]):
        splits, held_out_by = hold_out_by_number("no shard test", splits["train"], config, names)
    return Dataset(f"shards:{pattern}", splits, names, unreadable, held_out_by)


def _column(config):
    if len(config.label_columns) > 1:
        raise ValueError(
            "Shards have one column of labels. "
            f"Received: data.label_columns={list(config.label_columns)}"
        )
    return config.label_columns[0] if config.label_columns else None


def _class_names(shards: Shards, files, index: Index, column, labeled) -> tuple[str, ...]:
    """The names of the classes: as the shards or `shards.json` say, or numbers."""
    (without,) = np.nonzero(index.labels == NO_LABEL)
    if len(without):
        if labeled:
            raise ValueError(
                "Every picture must have a class. Received: "
                f"{_name(index, files.shards, without[0])} without one, and {len(without)} in all. "
                "Name the column of the labels in data.label_columns, or learn without labels"
            )
        return ()
    if not len(index.labels):
        return shards.classes
    names = shards.classes or index.classes or ()
    names = names or _names_in_file(shards.kind, files, column)
    highest = int(index.labels.max())
    if names and highest >= len(names):
        where = int(np.argmax(index.labels))
        raise damaged(
            files.shards[index.place(where)[0]].path,
            f"it has the class {highest}, and there are names of {len(names)} classes",
        )
    if index.classes and shards.classes and index.classes != shards.classes:
        raise ValueError(
            f"Names of classes in shards must be those of shards.json. Received: "
            f"{list(index.classes)[:5]} and {list(shards.classes)[:5]}"
        )
    return tuple(names or map(str, range(highest + 1)))


def _names_in_file(kind, files, column):
    read = FORMATS[kind].class_names
    return () if read is None else read(files.path(0), column)


def _name(index, shards, number):
    shard, _, _ = index.place(number)
    return f"{shards[shard].path} record {number - int(index.starts[shard])}"


def _split(records: Records, labels, bounds, shards: list[Shard], channels, unreadable) -> Split:
    """The records from the first of `bounds` up to the second."""
    start, stop = bounds
    labels = labels[start:stop]
    label_tensor = tf.constant(labels)
    picture = lambda i: records.read(start + i, *records.index.place(start + i))
    name = lambda i: _name(records.index, records.files.shards, start + i)

    def encoded(i):
        return tf_images.in_python(picture, i, tf.string, ()), tf.gather(label_tensor, i)

    def reason(i):
        if records.files.failure:  # no other picture may stand in for what could not be reached
            unreadable.fail(records.files.failure)
        return tf_images.reason(repr(name(i)), lambda: tf.constant(picture(i)), channels)

    stamped = lambda shard: shard.stamp + (shard.sha256 or "")
    origin = Origin(
        files=lambda: [
            (f"{name} {stamped(shard)}" if is_remote(shard.path) else name, shard.path)
            for shard in shards
            for name in [os.path.basename(shard.path)]
        ],
        name=name,
        reason=reason,
        channels=channels,
        unreadable=unreadable,
    )
    return Split(labels, encoded=encoded, origin=origin)
