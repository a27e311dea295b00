"""The kinds of shards: one row for each."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from vit_keras.data.shards.examples import (
    array_record_reader,
    scan_array_record,
    scan_tfrecord,
)
from vit_keras.data.shards.parquet import class_names, parquet_reader, scan_parquet
from vit_keras.data.shards.records import Record, damaged
from vit_keras.data.shards.tar import scan_tar

Reader = Callable[[int, int, int, int], bytes]


class ShardFormat(NamedTuple):
    """A kind of shard.

    Attributes:
        names: Matches the names of such files.
        scan: Takes a file and the column of the labels, and yields its records.
        reader: Takes the files; returns a function from a record's number in all files, the number
            of its file, its offset and its length to the bytes of the picture.
        class_names: Takes a file and the column; returns the names of the classes that it says.
    """

    names: re.Pattern
    scan: Callable[[str, str | None], Iterator[Record]]
    reader: Callable[[Sequence[str]], Reader]
    class_names: Callable[[str, str | None], tuple[str, ...]] = lambda path, column: ()


def ranges(paths: Sequence[str]) -> Reader:
    """Returns a function that reads bytes of a file."""

    def read(number, shard, offset, length):
        with open(paths[shard], "rb", buffering=0) as file:  # data sets have thousands of files
            file.seek(offset)
            data = file.read(length)
        if len(data) != length:
            raise damaged(paths[shard], f"it ends at byte {offset + len(data)}")
        return data

    return read


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
