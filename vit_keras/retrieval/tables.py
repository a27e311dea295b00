"""Tables of embeddings: Parquet files whose metadata says which model made them."""

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np

from vit_keras import extras
from vit_keras.json_files import parse_json
from vit_keras.retrieval.picture_lists import Picture

METADATA = b"vit_keras"  # the key of the description in the schema's metadata
DTYPES = ("float32", "float16")
COLUMNS = ("path", "label", "split", "embedding", "error")


class Description(TypedDict):
    """What a table must say of its embeddings."""

    shape: list[int]
    dtype: NotRequired[str]


def arrow(module: str = "pyarrow"):
    """Imports a module of PyArrow; ImportError names the extra to install."""
    return extras.require(module, extra="tables", purpose="Reading and writing embeddings")


def schema(shape: Sequence[int], dtype: str, description: dict[str, Any]):
    """The Arrow schema of a table.

    A vector is a list of fixed size, and an array of more axes a tensor of fixed shape, which
    readers that do not know tensors see as one flat list.
    """
    pa = arrow()
    value = pa.from_numpy_dtype(dtype)
    one = len(shape) == 1
    embedding = pa.list_(value, shape[0]) if one else pa.fixed_shape_tensor(value, list(shape))
    types = {name: pa.string() for name in COLUMNS} | {"embedding": embedding}
    return pa.schema(list(types.items()), {METADATA: json.dumps(description, sort_keys=True)})


def batch_of(schema, pictures: Sequence[Picture], embeddings: np.ndarray, errors: Sequence):
    """One Arrow batch of rows; those with an error have no embedding.

    Args:
        schema: From `schema`.
        pictures: N pictures.
        embeddings: `(N, *shape)`; rows with an error hold any values.
        errors: N reasons or None.
    """
    pa = arrow()
    field = schema.field("embedding").type
    storage = getattr(field, "storage_type", field)
    values = np.ascontiguousarray(embeddings, storage.value_type.to_pandas_dtype()).reshape(-1)
    missing = pa.array([error is not None for error in errors])
    size = storage.list_size
    column = pa.FixedSizeListArray.from_arrays(pa.array(values), size, mask=missing)
    if storage is not field:
        column = pa.ExtensionArray.from_storage(field, column)
    text = lambda strings: pa.array([string and utf8(string) for string in strings], pa.string())
    paths, labels, splits, _ = zip(*pictures)
    columns = [text(paths), text(labels), text(splits), column, text(errors)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def utf8(text: str) -> str:
    """The text, with an escape such as `\\udcff` for each byte of a path that is not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def open_writer(file, schema):
    """A Parquet writer; numbers hardly shrink, so that only text is compressed."""
    text = {name: "zstd" for name in COLUMNS if name != "embedding"}
    leaf = "embedding.list.element"
    return arrow("pyarrow.parquet").ParquetWriter(
        file,
        schema,
        compression={**text, leaf: "none"},
        use_dictionary=["label", "split", "error"],
        write_statistics=False,
    )


class EmbeddingTable:
    """A table of embeddings, read piece by piece.

    Args:
        path: A Parquet file that `vit-keras embed` wrote.

    Attributes:
        path: The file.
        description: Which model made the embeddings, of what, and how.
        shape: The shape of an embedding, (D,) or (rows, columns, D).

    Raises:
        FileNotFoundError: If there is no file at `path`.
        ValueError: If the file is no such table.

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
        try:
            self._file = parquet.ParquetFile(self.path)
        except arrow().ArrowException as error:
            raise ValueError(f"{self.path!r} cannot be read as Parquet ({error})") from error
        metadata = self._file.schema_arrow.metadata or {}
        if METADATA not in metadata:
            raise ValueError(
                "A table of embeddings is a Parquet file that `vit-keras embed` wrote. Received: "
                f"{self.path!r}, which does not say which model its values come from"
            )
        name, remedy = f"The description in {self.path!r}", "Restore the file, or embed again"
        self.description: dict[str, Any] = parse_json(metadata[METADATA], name, Description, remedy)
        self.shape = tuple(self.description["shape"])

    def __len__(self):
        return self._file.metadata.num_rows

    def pieces(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yields the rows piece by piece.

        A piece is the number of its first row, the embeddings `(n, *shape)` float32, and which rows
        have one, `(n,)` bool. The others, whose pictures could not be read, hold zeros.
        """
        start = 0
        for group in range(self._file.num_row_groups):
            column = self._file.read_row_group(group, ["embedding"]).column(0)
            embeddings, present = self._values(column)
            yield start, embeddings, present
            start += len(embeddings)

    def _values(self, column):
        chunk = column.combine_chunks()
        chunk = chunk.chunk(0) if hasattr(chunk, "chunk") else chunk
        chunk = getattr(chunk, "storage", chunk)
        present = np.asarray(chunk.is_valid())
        embeddings = np.zeros((len(chunk), *self.shape), "float32")
        values = chunk.flatten().to_numpy(zero_copy_only=False)  # without the rows that are null
        embeddings[present] = values.reshape(-1, *self.shape)
        return embeddings, present

    def embeddings(self, numbers: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the embeddings of some rows, `(n, *shape)` float32, and which of these exist."""
        return self._values(self._take(numbers, ["embedding"]).column(0))

    def pictures(self, numbers: Sequence[int] | np.ndarray) -> list[Picture]:
        """Returns the pictures of some rows."""
        rows = self._take(numbers, ["path", "label", "split"]).to_pylist()
        return [Picture(row["path"], row["label"], row["split"]) for row in rows]

    def count_errors(self) -> int:
        """Returns the number of rows without an embedding."""
        groups = range(self._file.num_row_groups)
        columns = (self._file.read_row_group(group, ["error"]).column(0) for group in groups)
        return sum(len(column) - column.null_count for column in columns)

    def _take(self, numbers, columns):
        """Reads some rows, in their order, from the row groups that hold them."""
        numbers = np.asarray(numbers, "int64")
        sizes = [
            self._file.metadata.row_group(g).num_rows for g in range(self._file.num_row_groups)
        ]
        ends = np.cumsum(sizes)
        places = np.searchsorted(ends, numbers, side="right")
        pieces, positions = [], np.empty(len(numbers), "int64")
        taken = 0
        for group in np.unique(places):
            (chosen,) = np.nonzero(places == group)
            rows = numbers[chosen] - (ends[group] - sizes[group])
            pieces.append(self._file.read_row_group(int(group), columns).take(rows))
            positions[chosen] = taken + np.arange(len(chosen))
            taken += len(chosen)
        if not pieces:
            return self._file.schema_arrow.empty_table().select(columns)
        return arrow().concat_tables(pieces).take(positions)
