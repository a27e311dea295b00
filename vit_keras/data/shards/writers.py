"""Writes shards: one class for each format."""

import io
import json
import tarfile
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from vit_keras import extras
from vit_keras.data.shards.parquet import IMAGE, LABEL, NOTE

ROWS_IN_GROUP = 16  # of Parquet, which are read together


class Writer(Protocol):
    """Writes the records of one file."""

    def write(self, name: str, picture: bytes, label: int | None) -> None:
        """Adds a picture, whose name ends in its suffix, with the number of its class if any."""

    def close(self) -> None:
        """Finishes the file."""


class TarWriter:
    """WebDataset's form: members NAME.jpg and NAME.cls. Equal pictures give equal bytes."""

    def __init__(self, path: str, classes: Sequence[str]):
        self.archive = tarfile.open(path, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115 - see `close`

    def write(self, name: str, picture: bytes, label: int | None) -> None:
        self._add(name, picture)
        if label is not None:
            self._add(f"{name.partition('.')[0]}.cls", str(label).encode())

    def _add(self, name, content):
        member = tarfile.TarInfo(name)
        member.size = len(content)
        self.archive.addfile(member, io.BytesIO(content))

    def close(self) -> None:
        self.archive.close()


class ParquetWriter:
    """The form of Hugging Face's data sets: `image` with bytes and path, and `label`."""

    def __init__(self, path: str, classes: Sequence[str]):
        self.arrow, parquet = (
            extras.require(name, extra="data", purpose="Writing Parquet files")
            for name in ("pyarrow", "pyarrow.parquet")
        )
        image = self.arrow.struct([("bytes", self.arrow.binary()), ("path", self.arrow.string())])
        fields = [(IMAGE, image)]
        features: dict[str, Any] = {IMAGE: {"_type": "Image"}}
        if classes:
            fields.append((LABEL, self.arrow.int64()))
            features[LABEL] = {"names": list(classes), "_type": "ClassLabel"}
        note = json.dumps({"info": {"features": features}})
        self.schema = self.arrow.schema(fields, metadata={NOTE: note})
        # Pictures are compressed already.
        self.file = parquet.ParquetWriter(
            path, self.schema, compression="none", use_dictionary=False, write_statistics=False
        )
        self.rows: list[dict[str, Any]] = []

    def write(self, name: str, picture: bytes, label: int | None) -> None:
        row: dict[str, Any] = {IMAGE: {"bytes": picture, "path": name}}
        self.rows.append(row if label is None else row | {LABEL: label})
        if len(self.rows) == ROWS_IN_GROUP:
            self._flush()

    def _flush(self):
        if self.rows:
            self.file.write_table(self.arrow.Table.from_pylist(self.rows, self.schema))
        self.rows = []

    def close(self) -> None:
        self._flush()
        self.file.close()


class ExampleWriter:
    """`tf.train.Example` with the features of TensorFlow Datasets, `image` and `label`."""

    def __init__(self, open_file: Callable[[str], Any], path: str, classes: Sequence[str]):
        self.file = open_file(path)

    def write(self, name: str, picture: bytes, label: int | None) -> None:
        features = {IMAGE: tf.train.Feature(bytes_list=tf.train.BytesList(value=[picture]))}
        if label is not None:
            features[LABEL] = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
        example = tf.train.Example(features=tf.train.Features(feature=features))
        self.file.write(example.SerializeToString(deterministic=True))

    def close(self) -> None:
        self.file.close()


def _array_record(path):
    module = extras.require(
        "array_record.python.array_record_module",
        extra="data",
        purpose="Writing ArrayRecord files",
    )
    return module.ArrayRecordWriter(path, "group_size:1")  # each record can be read alone


WRITERS: dict[str, Callable[[str, Sequence[str]], Writer]] = {
    "tar": TarWriter,
    "parquet": ParquetWriter,
    "tfrecord": lambda path, classes: ExampleWriter(tf.io.TFRecordWriter, path, classes),
    "array_record": lambda path, classes: ExampleWriter(_array_record, path, classes),
}
