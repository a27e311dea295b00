"""Pictures to embed, and tables of their embeddings: Parquet files that hold their own SHA-256."""

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.cropping import as_array
from vit_keras.data.sources import is_dataset
from vit_keras.evaluation.output_files import utf8
from vit_keras.evaluation.probes import unit_length
from vit_keras.support import extras
from vit_keras.support.checks import parse_json
from vit_keras.support.files import replacing


class Picture(NamedTuple):
    """One row of a table of embeddings, without its embedding.

    Attributes:
        path: The file, or the name of an image without a file, such as `tfds:cifar10 test[3]`.
        label: The name of the class, or None.
        split: The split of the data set, or None.
        size: The number of bytes of the file, or None.

    Example:
        ```python
        (picture,) = retrieval.EmbeddingTable("features.parquet").pictures([17])
        picture.path, picture.label  # ("photos/train/cat/3.jpg", "cat")
        ```
    """

    path: str
    label: str | None = None
    split: str | None = None
    size: int | None = None


class PictureList(NamedTuple):
    """Pictures in a fixed order, and a function that reads them.

    Attributes:
        pictures: The pictures; may be iterable only once.
        read: Maps the number of a picture, its path, and a number of channels to its pixels,
            `(H, W, C)`; raises OSError or ValueError for one that cannot be read.

    Example:
        ```python
        arrays = np.zeros((2, 32, 32, 3), "uint8")
        pictures = [retrieval.Picture("first"), retrieval.Picture("second", label="cat")]
        listed = retrieval.PictureList(pictures, lambda number, path, channels: arrays[number])
        ```
    """

    pictures: Iterable[Picture]
    read: Callable[[int, str, int], np.ndarray]


def list_pictures(
    arguments: Iterable[str | os.PathLike], channels: int = 3, config: DataConfig | None = None
) -> PictureList:
    """Lists the pictures that a command's arguments name.

    Args:
        arguments: Files, folders and patterns, as for `data.expand_pictures`, or one data set:
            see `data.load`. The images of a data set have splits, and labels if all of them have
            one.
        channels: 1 for grayscale, 3 for RGB, or another number, for a data set.
        config: The folder of TensorFlow Datasets, the images to hold out, and the levels and bands
            of pictures.

    Returns:
        A `PictureList`.

    Raises:
        FileNotFoundError, ValueError: As for `data.expand_pictures` and `data.load`.

    Example:
        ```python
        pictures = retrieval.list_pictures(["folder:photos"])
        next(iter(pictures.pictures))  # Picture(path='photos/cat/0.jpg', label='cat', ...)
        ```
    """
    names = [os.fspath(argument) for argument in arguments]
    datasets = [name for name in names if is_dataset(name) and not os.path.exists(name)]
    if datasets and len(names) > 1:
        raise ValueError(f"A data set must be the only argument. Received: {', '.join(names[:5])}")
    config = config or DataConfig()
    if datasets:
        return _of_dataset(names[0], channels, config)
    pictures = (Picture(str(path), size=_size(path)) for path in data.expand_pictures(names))
    depth: dict[str, Any] = {"levels": config.white, "bands": config.bands}
    return PictureList(pictures, lambda number, *told: data.read_image(*told, **depth))


def _of_dataset(name, channels, config):
    dataset = data.load(name, channels, config, labeled=False)
    names, splits = dataset.class_names, [*dataset.splits.values()]
    indices = np.concatenate([split.indices for split in splits])
    whole = dataclasses.replace(splits[0], indices=indices)

    def pictures():
        keys = [key for key, split in dataset.splits.items() for _ in range(len(split))]
        has_classes = names and dataset.kind == "classes"
        texts = [names[label] for label in whole.labels] if has_classes else [None] * len(whole)
        for index, (key, text) in enumerate(zip(keys, texts)):
            path = whole.name(index)
            yield Picture(path, text, key, _size(path))

    def read(number, path, channels):
        try:
            return as_array(whole.decoded(number)[0])
        except (OSError, SyntaxError, ValueError) as error:
            raise ValueError(whole.fault(number, error)) from error

    return PictureList(pictures(), read)


def _size(path):
    return os.path.getsize(path) if os.path.isfile(path) else None


METADATA = b"vit_keras"  # the key of the description in the schema's metadata
DTYPES = ("float32", "float16")
COLUMNS = ("path", "label", "split", "embedding", "error")
EXACT_NUMBERS = 200_000 * 768  # tables up to this size are kept in memory and searched exactly
SEAL, DIGITS = b"vit_keras sha256:", 64  # the text before a SHA-256 in a file
TAIL = 2**16  # bytes at the end of a file in which to search for it


class Description(TypedDict):
    """What the description in a table must say about its embeddings."""

    shape: list[int]
    dtype: str


def seal(file) -> None:
    """Writes the SHA-256 of a file into it, over the zeros after `SEAL`."""
    place, _, digest = _sealed(file)
    file.seek(place)
    file.write(digest)


def read_seal(path: str | os.PathLike, remedy: str) -> str:
    """Returns the SHA-256 that is stored in a file.

    Raises:
        ValueError: If there is none, or if the file has changed since `seal`. The message ends with
            the `remedy`.
    """
    with open(path, "rb") as file:
        _, recorded, digest = _sealed(file)
    if recorded != digest:
        raise ValueError(f"{str(path)!r} is damaged: its SHA-256 is missing or wrong. {remedy}")
    return recorded.decode()


def _sealed(file):
    """Returns the position of the SHA-256 in a file, the recorded one, and the actual one."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
    start, tail = file.tell(), file.read()
    before, mark, after = tail.rpartition(SEAL)
    digest = hashlib.sha256()
    file.seek(0)
    while start > file.tell():
        digest.update(file.read(min(2**20, start - file.tell())))
    digest.update(before + mark + b"0" * DIGITS + after[DIGITS:])
    return start + len(before + mark), after[:DIGITS], digest.hexdigest().encode()


def schema(shape: Sequence[int], dtype: str, description: dict[str, Any]):
    """Returns the Arrow schema of a table; an embedding is a flat list of fixed size."""
    pa = extras.require("pyarrow")
    embedding = pa.list_(pa.from_numpy_dtype(dtype), math.prod(shape))
    types = {name: pa.string() for name in COLUMNS} | {"embedding": embedding}
    return pa.schema(list(types.items()), {METADATA: json.dumps(description, sort_keys=True)})


def table_of(schema, pictures: Sequence[Picture], embeddings: np.ndarray, errors: Sequence):
    """Makes an Arrow table of rows; those with an error have no embedding.

    Args:
        schema: From `schema`.
        pictures: N pictures.
        embeddings: `(N, *shape)`; rows with an error hold any values.
        errors: For each picture, the reason why it has no embedding, or None.
    """
    pa = extras.require("pyarrow")
    kind = schema.field("embedding").type
    values = np.ascontiguousarray(embeddings, kind.value_type.to_pandas_dtype()).reshape(-1)
    missing = pa.array([error is not None for error in errors])
    column = pa.FixedSizeListArray.from_arrays(values, kind.list_size, mask=missing)
    text = lambda strings: pa.array([string and utf8(string) for string in strings], pa.string())
    paths, labels, splits, _ = zip(*pictures)
    columns = [text(paths), text(labels), text(splits), column, text(errors)]
    return pa.Table.from_arrays(columns, schema=schema)


def write(path: str | os.PathLike, schema, groups: Iterable) -> None:
    """Writes Arrow tables to a Parquet file as row groups; `path` appears once it is complete.

    Numbers barely compress, so only text is compressed.
    """
    parquet = extras.require("pyarrow.parquet")
    codecs = {name: "zstd" for name in COLUMNS if name != "embedding"}
    codecs["embedding.list.element"] = "none"
    told = {"compression": codecs, "use_dictionary": ["label", "split", "error"]}
    with replacing(path) as temporary, open(temporary, "w+b") as file:
        with parquet.ParquetWriter(file, schema, write_statistics=False, **told) as writer:
            for group in groups:
                writer.write_table(group)
            writer.add_key_value_metadata({"seal": SEAL.decode() + "0" * DIGITS})
        seal(file)


class EmbeddingTable:
    """A table of embeddings, read piece by piece.

    Args:
        path: A Parquet file written by `vit-keras embed`.

    Attributes:
        path: The file.
        description: The model that made the embeddings, the pictures, and the options.
        shape: The shape of an embedding, (D,) or (rows, columns, D).
        sha256: The SHA-256 of the file, excluding the recorded one.

    Raises:
        FileNotFoundError: If there is no file at `path`.
        ValueError: If the file is not such a table, or has changed since it was written.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        for start, embeddings, present in table.pieces():  # (n, D) float32 and (n,) bool
            ...
        paths = [picture.path for picture in table.pictures([0, 1, 2])]
        ```
    """

    def __init__(self, path: str | os.PathLike):
        parquet, self.path = extras.require("pyarrow.parquet"), os.fspath(path)
        remedy = "Restore the file, or make it with `vit-keras embed`"
        self.sha256 = read_seal(path, remedy)
        self._file = parquet.ParquetFile(self.path)
        columns, name = self._file.schema_arrow, f"The description in {self.path!r}"
        stored = (columns.metadata or {}).get(METADATA, b"")
        self.description: dict[str, Any] = parse_json(stored, name, Description, remedy)
        self.shape, kind = tuple(self.description["shape"]), self.description["dtype"]
        known = kind in DTYPES and 0 < min(self.shape, default=0) <= math.prod(self.shape) < 2**31
        if not known or not columns.equals(schema(self.shape, kind, {})):
            raise ValueError(
                f"{self.path!r} must have the columns {', '.join(COLUMNS)}, with embeddings of "
                f"shape {self.shape} and type {kind!r}. Received: {columns}. {remedy}"
            )
        groups = range(self._file.num_row_groups)
        sizes = [self._file.metadata.row_group(group).num_rows for group in groups]
        self._starts = np.cumsum([0, *sizes])  # of the row groups, and the end
        self._kept: list[tuple[np.ndarray, np.ndarray]] | None = None

    def __len__(self):
        return self._file.metadata.num_rows

    def pieces(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yields the rows piece by piece.

        A piece is the number of its first row, the embeddings `(n, *shape)` float32, and which rows
        have one, `(n,)` bool. Rows of unreadable pictures hold zeros.
        """
        for group, start in enumerate(self._starts[:-1]):
            yield int(start), *self._values(self._file.read_row_group(group, ["embedding"]))

    def unit_vectors(self) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        """Returns pieces for a search: row numbers `(n,)` and unit vectors `(n, D)`.

        The pieces stay in memory if they hold at most `EXACT_NUMBERS` numbers in all.
        """
        pieces = (
            (start + np.flatnonzero(present), unit_length(vectors[present]))
            for start, vectors, present in self.pieces()
        )
        if self._kept is None and self.is_small:
            self._kept = list(pieces)
        return self._kept or pieces

    @property
    def is_small(self) -> bool:
        """Whether the table is kept in memory and searched without an index."""
        return len(self) * math.prod(self.shape) <= EXACT_NUMBERS

    def embeddings(self, numbers: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the embeddings of some rows, `(n, *shape)` float32, and which of them exist."""
        return self._values(self._take(numbers, ["embedding"]))

    def pictures(self, numbers: Sequence[int] | np.ndarray) -> list[Picture]:
        """Returns the pictures of some rows."""
        rows = self._take(numbers, ["path", "label", "split"]).to_pylist()
        return [Picture(**row) for row in rows]

    def count_errors(self) -> int:
        """Returns the number of rows without an embedding."""
        column = self._file.read(["error"]).column(0)
        return len(column) - column.null_count

    def _values(self, table):
        column = table.column(0).combine_chunks()
        present = np.asarray(column.is_valid())
        embeddings = np.zeros((len(column), *self.shape), "float32")
        if len(column):
            embeddings[present] = column.flatten().to_numpy().reshape(-1, *self.shape)  # no nulls
            if not np.isfinite(embeddings).all():
                raise ValueError(f"{self.path!r} holds embeddings that are not finite. Embed again")
        return embeddings, present

    def _take(self, numbers, columns):
        """Reads some rows, in order, from the row groups that hold them."""
        groups = np.unique(np.searchsorted(self._starts, numbers, side="right") - 1).tolist()
        rows = [row for group in groups for row in range(*self._starts[group : group + 2])]
        return self._file.read_row_groups(groups, columns).take(np.searchsorted(rows, numbers))


def check_searchable(table: EmbeddingTable) -> None:
    """Raises ValueError unless a table holds one vector for each picture."""
    if len(table.shape) != 1:
        raise ValueError(
            f"A search needs one vector per picture. Received: {table.path!r} with embeddings "
            f"of shape {table.shape}. Embed the pictures with --tokens pool, class or mean"
        )
