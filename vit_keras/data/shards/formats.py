"""The kinds of shards, one row each, and how to find, read and write their records.

A scan's error says what is wrong with a file; the caller adds the file's name.
"""

import contextlib
import functools
import io
import itertools
import json
import operator
import os
import re
import struct
import tarfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from vit_keras.data.picture_files import SUFFIXES
from vit_keras.data.picture_paths import is_junk
from vit_keras.data.shards.shard_files import ShardFiles
from vit_keras.support import extras
from vit_keras.support.checks import LARGEST_JSON_BYTES, parse_json

MOST_CLASSES = 2**20  # so that names do not fill the memory
IMAGE, LABEL = "image", "label"

# Tar
CLASS_MEMBERS = ("cls", "class", "label")  # whose text is a class; `.cls.txt` works too
CLASS_KEYS = ("label", "cls", "class", "class_name", "target", "category")  # in `.json`
MOST_LABEL_BYTES = 256
MOST_PADDING = 2**20  # zeros after the last member

# Examples
IMAGES = (IMAGE, "image/encoded")  # in TensorFlow Datasets and in TensorFlow's older scripts
LABELS = (LABEL, "image/class/label")
HEADER, FOOTER = 12, 4  # bytes: a record's length and its checksum; the record's checksum
CHECKSUM_MASK = 0xA282EAD8  # for TFRecord: added to a CRC-32C rotated by 15 bits

# Parquet
NOTE = b"huggingface"  # the key of the schema's metadata with the class names
ROWS_AT_ONCE = 2**8
ROWS_IN_GROUP = 16  # of written files; rows of a group are read together
KEPT_GROUP_BYTES, KEPT_GROUPS, KEPT_FOOTERS = 2**24, 32, 64  # bytes of all pictures in a group


# A picture in a shard: its first byte and its number of bytes, or its group of rows and its row
# in the group; then the number or the name of its class, which the index checks, or None.
Record = tuple[int, int, int | str | None]
# Adds a picture to a shard, given its name with the suffix.
Write = Callable[[str, bytes, int | None], object]
# Reads a picture, given its file's number and the first two numbers of its record.
Reader = Callable[[int, int, int], bytes]
# Yields the records of a file, given the column of the labels.
Scan = Callable[[str, str | None], Iterator[Record]]
# Returns the picture and the class in an example, given its number and the column.
Parse = Callable[[int, bytes, str | None], tuple[bytes, int | str | None]]


def scan_tar(path: str, column: str | None) -> Iterator[Record]:
    """Yields a record for each picture in a WebDataset tar file.

    Members with the same name before the first dot are one record. Its class, if any, is the text
    of its `.cls` or `.cls.txt`, or a value in its `.json`. `column` names another such member or
    key. Other members, and hidden ones, are skipped. Nothing is extracted.
    """
    with open(path, "rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
        members = _tar_members(archive, os.path.getsize(path))
        for name, group in itertools.groupby(members, key=lambda member: member[0]):
            of_record = [(suffix, member) for _, suffix, member in group]
            by_suffix = dict(of_record)
            pictures = [suffix for suffix in by_suffix if suffix in SUFFIXES]
            pictures = [suffix for suffix in pictures if suffix != ".npy"] or pictures
            if len(pictures) > 1 or len(by_suffix) < len(of_record):
                raise ValueError(f"its record {name!r} has two members of the same kind")
            for suffix in pictures:
                picture, label = by_suffix[suffix], _tar_label(file, by_suffix, column)
                yield picture.offset_data, picture.size, label
        # Python's reader takes a damaged header for the end, so only zeros may follow.
        file.seek(archive.offset)
        rest = file.read(MOST_PADDING + 1)
        if not rest or len(rest) > MOST_PADDING or rest.strip(b"\0"):
            raise ValueError(f"it is truncated or damaged at byte {archive.offset}")


def _tar_members(archive, size):
    """Yields the name of each file's record, its suffix, such as ".jpg", and the member itself."""
    while (member := archive.next()) is not None:
        archive.members = []  # otherwise it would keep all members in memory
        folder, slash, name = member.name.rpartition("/")
        if not member.isfile() or is_junk(name):
            continue
        if member.issparse() or not 0 <= member.size <= size - member.offset_data:
            raise ValueError(f"its member {member.name!r} is sparse or truncated")
        stem, _, suffix = name.partition(".")
        yield f"{folder}{slash}{stem}", f".{suffix.lower()}", member


def _tar_label(file, by_suffix, column) -> int | str | None:
    """Returns the class that the members of a record give, if any."""
    names = (column.lower(),) if column else CLASS_MEMBERS
    for suffix in (f".{name}{end}" for name in names for end in ("", ".txt")):
        if (member := by_suffix.get(suffix)) is not None:
            text = _tar_bytes(file, member, MOST_LABEL_BYTES).decode("utf-8-sig").strip()
            if not text or not text.isprintable():
                raise ValueError(f"its member {member.name!r} must hold a class's number or name")
            return int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else text
    fields: dict = {}
    for suffix, member in by_suffix.items():
        if suffix.endswith(".json"):
            content = _tar_bytes(file, member, LARGEST_JSON_BYTES)
            fields |= parse_json(content, f"its member {member.name!r}")
    keys = (column,) if column else CLASS_KEYS
    label = next((fields[key] for key in keys if key in fields), None)
    if isinstance(label, float) and label.is_integer():
        return int(label)
    return label if type(label) in (int, str) else None


def _tar_bytes(file, member, most):
    if member.size > most:
        raise ValueError(f"its member {member.name!r} holds more than {most} bytes")
    file.seek(member.offset_data)
    return file.read(member.size)


def parse_example(number: int, record: bytes, column: str | None) -> tuple[bytes, int | str | None]:
    """Returns the bytes of the picture in an example, and its label."""
    features = example_class().FromString(record).features.feature
    first = lambda names: next((features[name] for name in names if name in features), None)
    image, label = first(IMAGES), first(LABELS if column is None else [column])
    pictures = [] if image is None else image.bytes_list.value
    classes = [None] if label is None else [*label.int64_list.value, *label.bytes_list.value]
    if len(pictures) != 1 or len(classes) != 1:
        has = ", ".join(sorted(features)[:5]) or "nothing"
        raise ValueError(
            f"its record {number} must have one picture in one of {IMAGES}, and at most one class "
            f"as its label, but has {has}"
        )
    (picture,), (known,) = pictures, classes
    return picture, known.decode() if isinstance(known, bytes) else known


def scan_tfrecord(path: str, column: str | None, parse: Parse = parse_example) -> Iterator[Record]:
    """Yields the place of each picture in a TFRecord file, and its label."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        for number in itertools.count():
            if not (header := file.read(HEADER)):
                return
            start, length = file.tell(), int.from_bytes(header[:8], "little")
            record = file.read(min(length, size))  # a length may lie
            if header[8:] != checksum(header[:8]) or file.read(FOOTER) != checksum(record):
                raise ValueError(f"its record {number} is truncated or its checksum differs")
            picture, label = parse(number, record, column)
            yield start + record.index(picture), len(picture), label


def checksum(data: bytes) -> bytes:
    """Returns the checksum of TFRecord files."""
    crc = extras.require("google_crc32c").value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + CHECKSUM_MASK) & 0xFFFFFFFF)


def example_class() -> Any:
    """Returns `tf.train.Example` from TensorFlow Datasets, which works without TensorFlow."""
    return extras.require("tensorflow_datasets.proto").tf_example_pb2.Example


def parquet() -> Any:
    """Returns PyArrow's module for Parquet files."""
    return extras.require("pyarrow.parquet")


def scan_parquet(path: str, column: str | None) -> Iterator[Record]:
    """Yields the place and the label of each row of a Parquet file in Hugging Face's layout."""
    with parquet().ParquetFile(path) as file:
        groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        rows, size = sum(map(abs, groups)), os.path.getsize(path)  # damaged ones are negative
        names = file.schema_arrow.names
        _picture_column(file.schema_arrow)
        if rows > size:
            raise ValueError(f"it cannot hold {rows} pictures in {size} bytes")
        if column and column not in names:
            raise ValueError(f"it has no column {column!r}, only {', '.join(names)}")
        column = column or (LABEL if LABEL in names else None)
    places = ((group, row) for group, count in enumerate(groups) for row in range(count))
    if column is None:
        yield from ((*place, None) for place in places)
        return
    with parquet().ParquetFile(path, read_dictionary=[column]) as file:
        batches = file.iter_batches(ROWS_AT_ONCE, columns=[column], use_threads=False)
        labels = (label for batch in batches for label in _parquet_labels(batch.column(0)))
        for place, label in zip(places, labels, strict=True):
            yield *place, label


def _parquet_labels(column) -> list:
    """Returns the labels in a column; refuses long ones, since a few bytes may repeat many."""
    if texts := getattr(column, "dictionary", None):
        compute = extras.require("pyarrow.compute")
        if (compute.max(compute.binary_length(texts)).as_py() or 0) > MOST_LABEL_BYTES:
            raise ValueError(f"a label takes more than {MOST_LABEL_BYTES} bytes")
    return column.to_pylist()


def parquet_class_names(files: ShardFiles, column: str | None) -> tuple[str, ...]:
    """Returns the class names in the metadata of Hugging Face data sets; empty without any."""
    note = (parquet().read_schema(files.path(0)).metadata or {}).get(NOTE, b"{}")
    try:
        names = json.loads(note)["info"]["features"][column or LABEL]["names"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    is_text = lambda name: isinstance(name, str)
    return tuple(names) if isinstance(names, list) and all(map(is_text, names)) else ()


def parquet_reader(files: ShardFiles) -> Reader:
    """Returns a function that reads the picture in a row of a file."""
    for number in range(len(files.shards)):
        files.path(number)  # fails now, not in the middle of a batch, if there is no room

    @functools.lru_cache(KEPT_FOOTERS)
    def footer(shard):
        metadata = parquet().read_metadata(files.path(shard))
        return metadata, _picture_column(metadata.schema.to_arrow_schema())

    def pictures(shard, group):
        """Yields the pictures of a group one by one: a few bytes may stand for many pictures."""
        metadata, column = footer(shard)
        with parquet().ParquetFile(files.path(shard), metadata=metadata) as file:
            for batch in file.iter_batches(1, [group], [column], use_threads=False):
                picture = batch.column(0)[0].as_py()
                yield picture["bytes"] if isinstance(picture, dict) else picture

    @functools.lru_cache(KEPT_GROUPS)
    def small(shard, group):
        kept, size = [], 0
        for picture in pictures(shard, group):
            kept.append(picture)
            size += len(picture or b"")
            if size > KEPT_GROUP_BYTES:
                return None
        return kept

    def read(shard, group, row):
        kept = small(shard, group)
        picture = kept[row] if kept else next(itertools.islice(pictures(shard, group), row, None))
        if picture is None:
            raise ValueError("its row holds at most the picture's path, not its bytes")
        return picture

    return read


def _picture_column(schema):
    """Returns the column of the pictures' bytes, as `read_row_group` takes it."""
    types = extras.require("pyarrow.types")
    is_bytes = lambda kind: types.is_binary(kind) or types.is_large_binary(kind)
    for field in sorted(schema, key=lambda field: field.name != IMAGE):  # `image` comes first
        if is_bytes(field.type):
            return field.name
        inner = field.type if types.is_struct(field.type) else ()
        if any(part.name == "bytes" and is_bytes(part.type) for part in inner):
            return f"{field.name}.bytes"
    raise ValueError(f"no column of {', '.join(schema.names)} holds the bytes of pictures")


@contextlib.contextmanager
def tar_writer(path: str, classes: Sequence[str]) -> Iterator[Write]:
    """Writes WebDataset's layout: NAME.jpg and NAME.cls. Equal pictures give equal bytes."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:

        def add(name, content):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))

        def write(name, picture, label):
            add(name, picture)
            if label is not None:
                add(f"{name.partition('.')[0]}.cls", str(label).encode())

        yield write


@contextlib.contextmanager
def parquet_writer(path: str, classes: Sequence[str]) -> Iterator[Write]:
    """Writes the layout of Hugging Face data sets: `image` with bytes and path, and `label`."""
    arrow, parquet = (extras.require(name) for name in ("pyarrow", "pyarrow.parquet"))
    fields = [(IMAGE, arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())]))]
    features: dict[str, Any] = {IMAGE: {"_type": "Image"}}
    if classes:
        fields.append((LABEL, arrow.int64()))
        features[LABEL] = {"names": list(classes), "_type": "ClassLabel"}
    schema = arrow.schema(fields, metadata={NOTE: json.dumps({"info": {"features": features}})})
    # Pictures are already compressed.
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    rows: list[dict[str, Any]] = []
    with parquet.ParquetWriter(path, schema, **options) as file:

        def flush():
            file.write_table(arrow.Table.from_pylist(rows, schema))
            rows.clear()

        def write(name, picture, label):
            rows.append({IMAGE: {"bytes": picture, "path": name}, LABEL: label})
            if len(rows) == ROWS_IN_GROUP:
                flush()

        yield write
        if rows:
            flush()


@contextlib.contextmanager
def tfrecord_writer(path: str, classes: Sequence[str]) -> Iterator[Write]:
    """Writes examples as TensorFlow Datasets does. Equal pictures give equal bytes."""
    new_example = example_class()
    with open(path, "wb") as file:

        def write(name, picture, label):
            example = new_example()
            example.features.feature[IMAGE].bytes_list.value.append(picture)
            if label is not None:
                example.features.feature[LABEL].int64_list.value.append(label)
            record = example.SerializeToString(deterministic=True)
            length = struct.pack("<Q", len(record))
            file.write(length + checksum(length) + record + checksum(record))

        yield write


class ShardFormat(NamedTuple):
    """A kind of shard.

    Attributes:
        names: Matches the names of such files.
        scan: Takes a file and the column of the labels, and yields its records.
        writer: Opens a new file, given its path and the names of the classes, and yields a function
            that adds a picture, given its name with the suffix, its bytes, and its class if any.
        reader: Takes the files of a data set, and returns a function that reads their pictures.
        class_names: Takes the files and the column, and returns the class names stored in them.
    """

    names: str
    scan: Scan
    writer: Callable[[str, Sequence[str]], contextlib.AbstractContextManager[Write]]
    reader: Callable[[ShardFiles], Reader] = operator.attrgetter("read")  # ranges of bytes
    class_names: Callable[[ShardFiles, str | None], tuple[str, ...]] = lambda files, column: ()


FORMATS = {
    "tar": ShardFormat(r"\.tar$", scan_tar, tar_writer),
    "parquet": ShardFormat(
        r"\.parquet$", scan_parquet, parquet_writer, parquet_reader, parquet_class_names
    ),
    # TensorFlow Datasets puts file numbers after the suffix.
    "tfrecord": ShardFormat(r"\.tfrecords?(-\d+-of-\d+)?$", scan_tfrecord, tfrecord_writer),
}


def format_of(name: str) -> str | None:
    """Returns the kind of shard from a file's name, or None."""
    return next((kind for kind, row in FORMATS.items() if re.search(row.names, name)), None)
