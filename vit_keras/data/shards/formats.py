"""The kinds of shards: one row for each."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from vit_keras.data.shards.examples import (
    array_record_reader,
    scan_array_record,
    scan_tfrecord,
)
from vit_keras.data.shards.parquet import class_names, parquet_reader, scan_parquet
from vit_keras.data.shards.records import Files, Reader, Record
from vit_keras.data.shards.tar import scan_tar


class ShardFormat(NamedTuple):
    """A kind of shard.

    Attributes:
        names: Matches the names of such files.
        scan: Takes a file and the column of the labels, and yields its records.
        reader: Takes the files of a data set, and returns what reads pictures from them.
        class_names: Takes a file and the column; returns the names of the classes that it says;
            None for formats that say none.
    """

    names: re.Pattern
    scan: Callable[[str, str | None], Iterator[Record]]
    reader: Callable[[Files], Reader]
    class_names: Callable[[str, str | None], tuple[str, ...]] | None = None


def ranges(files: Files) -> Reader:
    """Returns a function that reads bytes of a file."""
    return lambda number, shard, offset, length: files.read(shard, offset, length)


FORMATS: dict[str, ShardFormat] = {
    "tar": ShardFormat(
        re.compile(r"\.tar$"),
        lambda path, column: scan_tar(path),
        ranges,
    ),
    "parquet": ShardFormat(re.compile(r"\.parquet$"), scan_parquet, parquet_reader, class_names),
    # TensorFlow Datasets number files behind the suffix.
    "tfrecord": ShardFormat(re.compile(r"\.tfrecords?(-\d+-of-\d+)?$"), scan_tfrecord, ranges),
    "array_record": ShardFormat(
        re.compile(r"\.array_?record(-\d+-of-\d+)?$"), scan_array_record, array_record_reader
    ),
}


def format_of(name: str) -> str | None:
    """Returns the kind of shard that a name says, or None."""
    return next((kind for kind, row in FORMATS.items() if row.names.search(name)), None)
