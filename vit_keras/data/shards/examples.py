"""Files of `tf.train.Example`: TFRecord and ArrayRecord."""

import os
from collections.abc import Iterator

import tensorflow as tf

from vit_keras import extras
from vit_keras.data.shards.records import Files, Reader, Record, check_class, damaged
from vit_keras.data.tfds import record_offsets

IMAGES = ("image", "image/encoded")  # of TensorFlow Datasets, and of TensorFlow's older scripts
LABELS = ("label", "image/class/label")
READ_AT_ONCE = 64


def scan_tfrecord(path: str, column: str | None) -> Iterator[Record]:
    """Yields the place of each picture in a TFRecord file, and its label.

    Raises:
        ValueError: If the file is truncated, if a checksum differs, or if a record is no example
            with a picture. The message names the file.
    """
    offsets = record_offsets(path)
    end = offsets[-1][0] + offsets[-1][1] + 4 if offsets else 0  # a checksum ends each record
    if end != os.path.getsize(path):
        raise damaged(path, f"its records end at byte {end} of {os.path.getsize(path)}")
    records = tf.data.TFRecordDataset(path).as_numpy_iterator()
    try:
        for number, ((offset, _), record) in enumerate(zip(offsets, records)):
            picture, label = _parsed(path, number, record, column)
            yield Record(offset + record.index(picture), len(picture), label)
    except tf.errors.OpError as error:
        raise damaged(path, error.message) from error


def scan_array_record(path: str, column: str | None) -> Iterator[Record]:
    """Yields the number and the label of each record of an ArrayRecord file.

    Raises:
        ValueError: If the file is damaged, or if a record is no example with a picture. The message
            names the file.
        ImportError: If array_record is not installed.
    """
    source = _source([path])
    for start in range(0, len(source), READ_AT_ONCE):
        numbers = range(start, min(start + READ_AT_ONCE, len(source)))
        try:
            records = source.__getitems__(list(numbers))
        except Exception as error:  # the reader raises its own for damage
            raise damaged(path, str(error)) from error
        for number, record in zip(numbers, records, strict=True):
            yield Record(number, 0, _parsed(path, number, record, column)[1])


def array_record_reader(files: Files) -> Reader:
    """Returns a function that reads a picture by its number in all files together."""
    paths = [files.path(number) for number in range(len(files.shards))]
    source = _source(paths)

    def read(number, shard, offset, length):
        picture, _ = _parsed(paths[shard], offset, source[number], None)
        return picture

    return read


def _source(paths):
    module = extras.require(
        "array_record.python.array_record_data_source",
        extra="data",
        purpose="Reading ArrayRecord files",
    )
    try:
        return module.ArrayRecordDataSource(list(paths))
    except Exception as error:  # the reader raises its own for damage
        raise damaged(", ".join(paths[:3]), str(error)) from error


def _parsed(path, number, record, column):
    """The bytes of the picture in a record, and its label."""
    try:
        features = tf.train.Example.FromString(record).features.feature
    except Exception as error:  # protobuf's own
        raise damaged(path, f"its record {number} is no tf.train.Example") from error
    image = next((name for name in IMAGES if name in features), None)
    if image is None or len(features[image].bytes_list.value) != 1:
        raise damaged(
            path,
            f"its record {number} must have a picture in one of {', '.join(IMAGES)}, but has "
            f"{', '.join(sorted(features)[:5]) or 'nothing'}",
        )
    (picture,) = features[image].bytes_list.value
    name = next((name for name in ([column] if column else LABELS) if name in features), None)
    return picture, None if name is None else _label(path, number, name, features[name])


def _label(path, number, name, feature):
    values = [*feature.int64_list.value, *feature.bytes_list.value]
    if len(values) != 1:
        raise damaged(path, f"{name!r} of its record {number} must be one class")
    if isinstance(values[0], int):
        return check_class(path, f"its record {number}", values[0])
    try:
        return values[0].decode()
    except UnicodeDecodeError as error:
        raise damaged(path, f"{name!r} of its record {number} is no text") from error
