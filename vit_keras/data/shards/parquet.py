"""Parquet files with the bytes of pictures, as Hugging Face's data sets have them."""

import contextlib
import functools
import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from vit_keras import extras
from vit_keras.data.shards.records import Files, Reader, Record, check_class, damaged

IMAGE, LABEL = "image", "label"
NOTE = b"huggingface"  # the key of the schema's metadata that says the names of the classes
ROWS_AT_ONCE = 2**16
# A group is read as a whole. Few of them are kept, and none that takes more than it should.
MOST_GROUP_BYTES, KEPT_GROUP_BYTES, KEPT_GROUPS, KEPT_FOOTERS = 2**30, 2**24, 32, 64


def scan_parquet(path: str, column: str | None) -> Iterator[Record]:
    """Yields the number and the label of each row of a Parquet file.

    Raises:
        ValueError: If the file is damaged, has no column of pictures or lacks the
            `column`, or has a group of rows that would take more than 1 GiB.
        ImportError: If PyArrow is not installed.
    """
    with _reading(path):
        file = _parquet().ParquetFile(path)
        rows, size = file.metadata.num_rows, os.path.getsize(path)
        groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
    _picture_column(path, file.schema_arrow)
    if rows > size or rows != sum(group.num_rows for group in groups):
        raise damaged(path, f"it cannot hold {rows} pictures in {size} bytes")
    if any(group.total_byte_size > MOST_GROUP_BYTES for group in groups):
        raise damaged(
            path,
            f"a group of its rows takes more than {MOST_GROUP_BYTES} bytes; write smaller ones",
        )
    if column and column not in file.schema_arrow.names:
        raise damaged(path, f"it has no column {column!r} but {', '.join(file.schema_arrow.names)}")
    column = column or (LABEL if LABEL in file.schema_arrow.names else None)
    if column is None:
        yield from (Record(row, 0, None) for row in range(rows))
    else:
        yield from _labeled(path, file, column, rows)


def class_names(path: str, column: str | None) -> tuple[str, ...]:
    """Returns the names of the classes in the note of Hugging Face's data sets; empty without."""
    with _reading(path):
        note = (_parquet().read_schema(path).metadata or {}).get(NOTE, b"{}")
    try:
        names = json.loads(note)["info"]["features"][column or LABEL]["names"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(names) if isinstance(names, list) and all(map(_is_text, names)) else ()


def parquet_reader(files: Files) -> Reader:
    """Returns a function that reads the picture in a row of a file."""
    for number in range(len(files.shards)):
        files.path(number)  # a copy is made now, rather than in the midst of a batch

    @functools.lru_cache(KEPT_FOOTERS)
    def footer(shard):
        path = files.path(shard)
        with _reading(path):
            metadata = _parquet().read_metadata(path)
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        column = _picture_column(path, metadata.schema.to_arrow_schema())
        return metadata, column, np.cumsum([0, *sizes])

    def group(shard, number):
        metadata, column, _ = footer(shard)
        path = files.path(shard)
        with _reading(path), _parquet().ParquetFile(path, metadata=metadata) as file:
            return file.read_row_group(number, columns=[column], use_threads=False).column(0)

    kept = functools.lru_cache(KEPT_GROUPS)(group)

    def read(number, shard, offset, length):
        metadata, _, starts = footer(shard)
        group_number = int(np.searchsorted(starts, offset, side="right")) - 1
        small = metadata.row_group(group_number).total_byte_size <= KEPT_GROUP_BYTES
        pictures = (kept if small else group)(shard, group_number)
        picture = pictures[offset - int(starts[group_number])].as_py()
        picture = picture["bytes"] if isinstance(picture, dict) else picture
        if picture is None:
            raise ValueError("it has no bytes, but a path at most")
        return picture

    return read


def _parquet() -> Any:
    return extras.require("pyarrow.parquet", extra="data", purpose="Reading Parquet files")


@contextlib.contextmanager
def _reading(path):
    """Turns PyArrow's errors into one that names the file."""
    arrow = extras.require("pyarrow", extra="data", purpose="Reading Parquet files")
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        raise damaged(path, str(error)) from error


def _picture_column(path, schema):
    """The column of the pictures' bytes, as `read_row_group` takes it."""
    arrow = extras.require("pyarrow", extra="data", purpose="Reading Parquet files")
    is_bytes = lambda kind: arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind)
    for field in sorted(schema, key=lambda field: field.name != IMAGE):  # `image` comes first
        if is_bytes(field.type):
            return field.name
        if arrow.types.is_struct(field.type) and any(
            inner.name == "bytes" and is_bytes(inner.type) for inner in field.type
        ):
            return f"{field.name}.bytes"
    raise damaged(path, f"no column of {', '.join(schema.names)} holds the bytes of pictures")


def _labeled(path, file, column, rows):
    row = 0
    with _reading(path):
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=[column], use_threads=False):
            for label in batch.column(0).to_pylist():
                yield Record(row, 0, _label(path, row, column, label))
                row += 1
    if row != rows:
        raise damaged(path, f"it has {row} labels of {rows} pictures")


def _label(path, row, column, label):
    if isinstance(label, int) and not isinstance(label, bool):
        return check_class(path, f"its row {row}", label)
    if label is None or isinstance(label, str):
        return label
    raise damaged(path, f"{column!r} of its row {row} must be one class, but is {label!r:.60}")


def _is_text(name):
    return isinstance(name, str)
