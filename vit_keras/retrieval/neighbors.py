"""Finds the rows of a table that are nearest to vectors: by comparing all, or with an index."""

import os
from typing import NamedTuple

import numpy as np

from vit_keras.evaluation.probes import unit_length
from vit_keras.retrieval.tables import (
    DIGITS,
    SEAL,
    EmbeddingTable,
    check_searchable,
    read_seal,
    seal,
)
from vit_keras.support import extras, machine
from vit_keras.support.files import claimed_output, replacing

CONNECTIVITY = 16  # neighbors per node of the graph; up to twice as many in its bottom layer
CANDIDATES = {"expansion_add": 128, "expansion_search": 1024}  # on adding a node, and in a search
MANY = 100  # more neighbors than this need more candidates


class Neighbors(NamedTuple):
    """The rows nearest to one vector, the nearest first.

    Attributes:
        rows: The numbers of the rows, `(k,)`.
        similarities: Their cosine similarities, `(k,)` float32.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        for neighbors in retrieval.exact_neighbors(table, vectors, count=5):
            print(neighbors.rows, neighbors.similarities)
        ```
    """

    rows: np.ndarray
    similarities: np.ndarray


def exact_neighbors(table: EmbeddingTable, queries: np.ndarray, count: int) -> list[Neighbors]:
    """Finds the rows nearest to each query by comparing it with all rows.

    Args:
        table: A table of vectors.
        queries: `(Q, D)`, of any nonzero length.
        count: The largest number of rows for each query.

    Returns:
        Q `Neighbors`. Rows of equal similarity keep the table's order.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        vectors, _ = table.embeddings([0])
        rows, similarities = retrieval.exact_neighbors(table, vectors, count=5)[0]
        ```
    """
    queries = unit_length(queries)
    rows = np.empty((len(queries), 0), "int64")
    similarities = np.empty((len(queries), 0), "float32")
    for numbers, vectors in table.unit_vectors():
        new = np.broadcast_to(numbers, (len(queries), len(numbers)))
        rows = np.concatenate([rows, new], axis=1)
        similarities = np.concatenate([similarities, queries @ vectors.T], axis=1)
        best = np.argsort(-similarities, axis=1, kind="stable")[:, :count]
        rows, similarities = (np.take_along_axis(x, best, axis=1) for x in (rows, similarities))
    return list(map(Neighbors, rows, similarities))


class NeighborIndex:
    """A graph of a table's vectors (HNSW, arXiv 1603.09320), built and searched by USearch.

    A search keeps 1024 candidates, or ten per neighbor if that is more.

    Args:
        table: A table of vectors with an index beside it from `open_index`.

    Attributes:
        made_of: The SHA-256 of the table that the index was built from.

    Raises:
        FileNotFoundError: If there is no index beside the table.
        ValueError: If the index has changed since it was written.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        index = retrieval.open_index(table)
        rows, similarities = index.search(vectors, count=5)[0]
        ```
    """

    def __init__(self, table: EmbeddingTable):
        path, remedy = index_path(table), "Build it again with --build"
        if not read_seal(path, remedy):
            raise ValueError(f"{path!r} is damaged (it lacks its SHA-256). {remedy}")
        with open(path, "rb") as file:
            file.seek(-(DIGITS + len(SEAL) + DIGITS), os.SEEK_END)
            self.made_of = file.read(DIGITS).decode()
        self._graph = _usearch().Index.restore(path, view=True)
        if self._graph.ndim != table.shape[0] or len(self._graph) > len(table):
            raise ValueError(f"{path!r} is not an index of {table.path!r}. {remedy}")

    def search(self, queries: np.ndarray, count: int) -> list[Neighbors]:
        """Finds the rows nearest to each query `(Q, D)`, approximating `exact_neighbors`."""
        self._graph.expansion_search = CANDIDATES["expansion_search"] * max(1, -(-count // MANY))
        matches = self._graph.search(unit_length(queries), count)
        return [
            Neighbors(np.asarray(m.keys, "int64"), 1 - np.asarray(m.distances, "float32"))
            for m in (matches if len(queries) > 1 else [matches])
        ]


def index_path(table: EmbeddingTable) -> str:
    """Returns the path of a table's index."""
    return f"{table.path}.index"


def open_index(table: EmbeddingTable, rebuild: bool = False) -> NeighborIndex | None:
    """Opens the index beside a table; builds it first if there is none for this table.

    Args:
        table: A table of vectors.
        rebuild: Whether to build the index even if there is one.

    Returns:
        The index; None for a table of at most 200 000 x 768 numbers, which is searched exactly.

    Raises:
        ImportError: If USearch is not installed.
        ValueError: If the index is damaged, or if another process is building it.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        index = retrieval.open_index(table)
        index.search(vectors, count=5)  # (Q, D) -> Q `Neighbors`
        ```
    """
    check_searchable(table)
    if table.is_small:
        return None
    path = index_path(table)
    if not rebuild and os.path.exists(path):
        index = NeighborIndex(table)
        if index.made_of == table.sha256:
            return index
    with claimed_output(path, "an index", "Wait until it ends, or give --exact"):
        _build(table, path)
    return NeighborIndex(table)


def _build(table, path):
    """Writes USearch's file, the SHA-256 of the table, and the SHA-256 of both."""
    kind = {"float32": "f32", "float16": "f16"}[table.description["dtype"]]
    graph = _usearch().Index(
        ndim=table.shape[0], metric="ip", dtype=kind, connectivity=CONNECTIVITY, **CANDIDATES
    )
    for rows, vectors in table.unit_vectors():
        graph.add(rows, vectors, threads=machine.cores())
    with replacing(path) as temporary:
        graph.save(temporary)
        with open(temporary, "r+b") as file:
            file.seek(0, os.SEEK_END)
            file.write(table.sha256.encode() + SEAL + b"0" * DIGITS)
            seal(file)


def _usearch():
    return extras.require("usearch.index")
