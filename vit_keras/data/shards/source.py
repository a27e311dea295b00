"""`shards:PATTERN`: labeled pictures by index in tar, Parquet, TFRecord or ArrayRecord files."""

import dataclasses
import os
from collections.abc import Sequence

import numpy as np

from vit_keras import extras
from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset
from vit_keras.data.held_out import hold_out_of
from vit_keras.data.origin import Origin, UnreadableImages
from vit_keras.data.shards.formats import FORMATS
from vit_keras.data.shards.index import NO_LABEL, Index, open_index
from vit_keras.data.shards.places import Shards, find_shards
from vit_keras.data.shards.shard_files import Shard, ShardFiles, is_remote
from vit_keras.data.splits import Split


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
    if len(config.label_columns) > 1:
        raise ValueError(
            "Shards have one column of labels. "
            f"Received: data.label_columns={list(config.label_columns)}"
        )
    column = config.label_columns[0] if config.label_columns else None
    shards = find_shards(pattern)
    flat = [shard for of_split in shards.splits.values() for shard in of_split]
    files = ShardFiles(flat, config.shard_cache_gb)
    index = open_index(files, shards.kind, column)
    if not len(index.labels):
        raise ValueError(
            "Shards must hold pictures. "
            f"Received: {pattern!r} with none, but {_contents(files, shards.kind, 0)}"
        )
    files.copy_all()
    names = _class_names(shards, files, index, column, labeled)
    labels = index.labels if names else np.zeros_like(index.labels)
    read = FORMATS[shards.kind].reader(files)
    encoded = lambda number: (read(number, *index.place(number)), labels[number])
    unreadable = UnreadableImages(config.on_corrupt == "stop")
    name = lambda number: _name(index, flat, number)
    origin = Origin(lambda: [*map(_name_and_path, flat)], name, channels, unreadable)
    splits, first = {}, 0
    for key, of_split in shards.splits.items():
        start, stop = index.starts[[first, first + len(of_split)]].tolist()
        splits[key] = _part(labels, encoded, origin, start, stop, of_split)
        first += len(of_split)
    splits, held_out_by = hold_out_of(splits, "no shard test", "classes", config, bool(names))
    return Dataset(f"shards:{pattern}", splits, names, unreadable, held_out_by)


def _part(labels, encoded, origin, start, stop, shards) -> Split:
    """The records of some shards, from `start` up to `stop`."""
    return Split(
        labels[start:stop],
        encoded=lambda i: encoded(start + i),
        origin=dataclasses.replace(
            origin,
            files=lambda: [*map(_name_and_path, shards)],
            name=lambda i: origin.name(start + i),
        ),
    )


def _class_names(shards: Shards, files, index: Index, column, labeled) -> tuple[str, ...]:
    """The names of the classes: as the shards or `shards.json` say, or numbers."""
    (without,) = np.nonzero(index.labels == NO_LABEL)
    if len(without) and not labeled:
        return ()
    if len(without):
        raise ValueError(
            "Every picture must have a class. Received: "
            f"{_name(index, files.shards, without[0])} without one, and {len(without)} in all; "
            f"the shard has {_contents(files, shards.kind, index.place(without[0])[0])}. Name the "
            "labels in data.label_columns, or learn without labels"
        )
    if index.classes and shards.classes and index.classes != shards.classes:
        raise ValueError(
            f"Names of classes in shards must be those of shards.json. Received: "
            f"{list(index.classes)[:5]} and {list(shards.classes)[:5]}"
        )
    names = shards.classes or index.classes
    names = names or FORMATS[shards.kind].class_names(files, column)
    highest = int(index.labels.max())
    if names and highest >= len(names):
        shard, _, _ = index.place(int(np.argmax(index.labels)))
        raise files.shards[shard].damaged(
            f"it has the class {highest}, and there are names of {len(names)} classes"
        )
    return tuple(names or map(str, range(highest + 1)))


def _contents(files, kind, number) -> str:
    """Says what a shard has."""
    with files.scanning(number) as path:
        return FORMATS[kind].contents(path)


def _name(index: Index, shards: Sequence[Shard], number) -> str:
    shard, _, _ = index.place(number)
    return f"{shards[shard].path} record {number - int(index.starts[shard])}"


def _name_and_path(shard: Shard) -> tuple[str, str]:
    name = os.path.basename(shard.path)
    stamp = f" {shard.stamp}{shard.sha256 or ''}" if is_remote(shard.path) else ""
    return name + stamp, shard.path
