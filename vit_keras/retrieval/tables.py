"""Tables of embeddings: Parquet files that say which model made them, and hold their SHA-256."""

import functools
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np

from vit_keras import extras
from vit_keras.data.answers import utf8
from vit_keras.files import replacing
from vit_keras.json_files import parse_json
from vit_keras.retrieval.pictures import Picture

METADATA = b"vit_keras"  # the key of the description in the schema's metadata
DTYPES = ("float32", "float16")
COLUMNS = ("path", "label", "split", "embedding", "error")
EXACT_NUMBERS = 200_000 * 768  # tables of up to as many are held in memory and searched exactly
SEAL, DIGITS = b"vit_keras sha256:", 64  # what precedes a SHA-256 in a file
TAIL = 2**16  # bytes at the end of a file where it is looked for


class Description(TypedDict):
    """What a table must say of its embeddings."""

    shape: list[int]
    dtype: NotRequired[str]


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """Divides vectors `(..., D)` by their Euclidean lengths; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths == 0, 1, lengths)


def seal(file) -> None:
    """Writes into a file, at the place that `SEAL` and zeros keep, the SHA-256 of the rest."""
    place, _, digest = _sealed(file)
    file.seek(place)
    file.write(digest)


def read_seal(path: str | os.PathLike, remedy: str) -> str:
    """Returns the SHA-256 that a file holds, or "" if it holds none.

    Raises:
        ValueError: If the file has changed since `seal`. The message ends with the `remedy`.
    """
    with open(path, "rb") as file:
        _, recorded, digest = _sealed(file)
    if recorded not in (b"", digest):
        raise ValueError(
            f"{os.fspath(path)!r} is damaged (its SHA-256 is no longer the one that was written "
            f"into it). {remedy}"
        )
    return recorded.decode()


def _sealed(file):
    """The place of the SHA-256 in a file, the one that is there, and the right one."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
    start, tail = file.tell(), file.read()
    before, mark, after = tail.rpartition(SEAL)
    if not mark:
        return 0, b"", b""
    digest = hashlib.sha256()
    file.seek(0)
    while start > file.tell():
        digest.update(file.read(min(2**20, start - file.tell())))
    digest.update(before + mark + b"0" * DIGITS + after[DIGITS:])
    return start + len(before + mark), after[:DIGITS], digest.hexdigest().encode()


def arrow(module: str = "pyarrow"):
    """Imports a module of PyArrow; ImportError names the extra to install."""
    return extras.require(module, extra="tables", purpose="Reading and writing embeddings")


def schema(shape: Sequence[int], dtype: str, description: dict[str, Any]):
    """The Arrow schema of a table, where an embedding is a flat list of fixed size."""
    pa = arrow()
    embedding = pa.list_(pa.from_numpy_dtype(dtype), math.prod(shape))
    types = {name: pa.string() for name in COLUMNS} | {"embedding": embedding}
    return pa.schema(list(types.items()), {METADATA: json.dumps(description, sort_keys=True)})


def table_of(schema, pictures: Sequence[Picture], embeddings: np.ndarray, errors: Sequence):
    """Rows as an Arrow table; those with an error have no embedding.

    Args:
        schema: From `schema`.
        pictures: N pictures.
        embeddings: `(N, *shape)`; rows with an error hold any values.
        errors: N reasons or None.
    """
    pa = arrow()
    kind = schema.field("embedding").type
    values = np.ascontiguousarray(embeddings, kind.value_type.to_pandas_dtype()).reshape(-1)
    missing = pa.array([error is not None for error in errors])
    column = pa.FixedSizeListArray.from_arrays(values, kind.list_size, mask=missing)
    text = lambda strings: pa.array([string and utf8(string) for string in strings], pa.string())
    paths, labels, splits, _ = zip(*pictures)
    columns = [text(paths), text(labels), text(splits), column, text(errors)]
    return pa.Table.from_arrays(columns, schema=schema)


def write(path: str | os.PathLike, schema, groups: Iterable) -> None:
    """Writes Arrow tables to a Parquet file as groups of rows; `path` appears when it is complete.

    Numbers barely compress, so only text is compressed.
    """
    with replacing(path) as temporary, open(temporary, "w+b") as file:
        with arrow("pyarrow.parquet").ParquetWriter(
            file,
            schema,
            compression={name: "zstd" for name in COLUMNS if name != "embedding"}
            | {"embedding.list.element": "none"},
            use_dictionary=["label", "split", "error"],
            write_statistics=False,
        ) as writer:
            for group in groups:
                writer.write_table(group)
            writer.add_key_value_metadata({"seal": SEAL.decode() + "0" * DIGITS})
        seal(file)


class EmbeddingTable:
    """A table of embeddings, read piece by piece.

    Args:
        path: A Parquet file that `vit-keras embed` wrote.

    Attributes:
        path: The file.
        description: Which model made the embeddings, of what, and how.
        shape: The shape of an embedding, (D,) or (rows, columns, D).
        sha256: The SHA-256 of the file, without the one that it holds.

    Raises:
        FileNotFoundError: If there is no file at `path`.
        ValueError: If the file is no such table, or has changed since it was written.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        for start, embeddings, present in table.pieces():  # (n, D) float32 and (n,) bool
            ...
        paths = [picture.path for picture in table.pictures([0, 1, 2])]
        ```
    """

    def __init__(self, path: str | os.PathLike):
        parquet, self.path = arrow("pyarrow.parquet"), os.fspath(path)
        if not os.path.isfile(path):
            raise FileNotFoundError(f"There is no table of embeddings at {self.path!r}.")
        remedy = "Restore the file, or embed again"
        self.sha256 = read_seal(path, remedy)
        try:
            self._file = parquet.ParquetFile(self.path)
        except (OSError, arrow().ArrowException) as error:
            raise ValueError(f"{self.path!r} cannot be read as Parquet ({error})") from error
        metadata = self._file.schema_arrow.metadata or {}
        if METADATA not in metadata or not self.sha256:
            raise ValueError(
                "A table of embeddings is a Parquet file that `vit-keras embed` wrote. Received: "
                f"{self.path!r}, which does not say which model its values come from"
            )
        name = f"The description in {self.path!r}"
        self.description: dict[str, Any] = parse_json(metadata[METADATA], name, Description, remedy)
        self.shape = tuple(self.description["shape"])
        groups = range(self._file.num_row_groups)
        self._sizes = np.array([self._file.metadata.row_group(g).num_rows for g in groups], int)
        self._starts = np.cumsum(self._sizes) - self._sizes

    def __len__(self):
        return self._file.metadata.num_rows

    def pieces(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yields the rows piece by piece.

        A piece is the number of its first row, the embeddings `(n, *shape)` float32, and which rows
        have one, `(n,)` bool. The others, whose pictures could not be read, hold zeros.
        """
        for group, start in enumerate(self._starts):
            yield int(start), *self._values(self._file.read_row_group(group, ["embedding"]))

    def unit_vectors(self) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        """Pieces for a search: numbers of rows `(n,)`, and their vectors `(n, D)` of length 1.

        They stay in memory if there are at most `EXACT_NUMBERS` numbers.
        """
        return self._kept if self.is_small else self._unit_vectors()

    @property
    def is_small(self) -> bool:
        """Whether the table is held in memory and searched without an index."""
        return len(self) * math.prod(self.shape) <= EXACT_NUMBERS

    @functools.cached_property
    def _kept(self):
        return list(self._unit_vectors())

    def _unit_vectors(self):
        for start, vectors, present in self.pieces():
            yield start + np.flatnonzero(present), unit_length(vectors[present])

    def embeddings(self, numbers: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the embeddings of some rows, `(n, *shape)` float32, and which of these exist."""
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
            values = column.flatten().to_numpy()  # without the rows that are null
            embeddings[present] = values.reshape(-1, *self.shape)
        return embeddings, present

    def _take(self, numbers, columns):
        """Reads some rows, in their order, from the groups of rows that hold them."""
        numbers = np.asarray(numbers, "int64")
        places = np.searchsorted(self._starts, numbers, side="right") - 1
        groups, nth = np.unique(places, return_inverse=True)
        sizes = self._sizes[groups]
        offsets = np.cumsum(sizes) - sizes
        table = self._file.read_row_groups(groups.tolist(), columns)
        return table.take(numbers - self._starts[places] + offsets[nth])


def check_searchable(table: EmbeddingTable) -> None:
    """Raises ValueError unless a table holds one vector for each picture."""
    if len(table.shape) != 1:
        raise ValueError(
            f"A search needs one vector a picture. Received: {table.path!r} with embeddings "
            f"{table.shape}. Embed the pictures with --tokens pool, class or mean"
        )
