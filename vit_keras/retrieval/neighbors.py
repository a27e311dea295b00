"""Nearest neighbors of vectors by cosine similarity, from a graph or by going through the table."""

import json
import os
import pathlib
from typing import Any, NamedTuple, TypedDict

import numpy as np

from vit_keras import extras, machine
from vit_keras.file_lock import claimed_output
from vit_keras.files import replacing_folder
from vit_keras.json_files import read_json
from vit_keras.retrieval.embedder import unit_length
from vit_keras.retrieval.tables import EmbeddingTable

EXACT_ROWS = 10_000  # tables of fewer rows are searched without an index
CONNECTIVITY = 16  # neighbors of a node of the graph, which may have twice as many at its bottom
EXPANSION_ADD = 128  # candidates kept while a node is connected
EXPANSIONS = (64, 128, 256, 512, 1024, 2048)  # candidates kept in a search; the first that does
RECALL, RECALL_AT = 0.98, 10  # what the sample must reach
SAMPLE = 256  # rows that measure the index before they join it


class About(TypedDict):
    """What `index.json` must hold."""

    expansion: int | None


class Neighbors(NamedTuple):
    """The nearest rows of one vector, the nearest first.

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
    """Finds the nearest rows of each query by comparing it with all rows.

    Args:
        table: A table of vectors.
        queries: `(Q, D)`, of any length but zero.
        count: The most rows for each query.

    Returns:
        Q `Neighbors`. Rows of equal similarity come in the table's order.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        vectors, _ = table.embeddings([0])
        rows, similarities = retrieval.exact_neighbors(table, vectors, count=5)[0]
        ```
    """
    best = [Neighbors(np.empty(0, "int64"), np.empty(0, "float32")) for _ in queries]
    queries = unit_length(np.asarray(queries, "float32"))
    for start, vectors, present in table.pieces():
        (rows,) = np.nonzero(present)
        similarities = queries @ unit_length(vectors[rows]).T
        best = [_merged(b, rows + start, s, count) for b, s in zip(best, similarities)]
    return best


def _merged(best, rows, similarities, count):
    """The `count` best of some neighbors and of other rows."""
    rows = np.concatenate([best.rows, rows])
    similarities = np.concatenate([best.similarities, similarities])
    order = np.lexsort((rows, -similarities))[:count]
    return Neighbors(rows[order], similarities[order])


class NeighborIndex:
    """A graph of a table's vectors (HNSW, arXiv 1603.09320), which USearch builds and searches.

    When the graph is built, some rows are held out, and their neighbors are compared with those of
    a search through all rows. A search then keeps as many candidates as were needed to find 98 % of
    the ten nearest rows. The held-out rows join the graph in the end.

    Args:
        table: A table of vectors.
        folder: The folder of an index that `open_index` made.

    Attributes:
        about: What the index is: its sizes, and the measured "recall" of each expansion. The chosen
            "expansion" is None if none was enough; then all rows are compared.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        index = retrieval.open_index(table)
        rows, similarities = index.search(vectors, count=5)[0]
        ```
    """

    def __init__(self, table: EmbeddingTable, folder: pathlib.Path):
        self.table, self.about = table, read_json(folder / "index.json", About)
        usearch = _usearch()
        self._graph = usearch.Index.restore(os.fspath(folder / "graph.usearch"), view=True)

    def search(self, queries: np.ndarray, count: int) -> list[Neighbors]:
        """Finds the nearest rows of each query `(Q, D)`, as `exact_neighbors` does.

        For more than ten neighbors, more candidates are kept in proportion.
        """
        expansion = self.about["expansion"]
        if expansion is None:
            return exact_neighbors(self.table, queries, count)
        self._graph.expansion_search = -(-expansion * max(count, RECALL_AT) // RECALL_AT)
        matches = self._graph.search(unit_length(np.asarray(queries, "float32")), count)
        return [
            Neighbors(np.asarray(m.keys, "int64"), 1 - np.asarray(m.distances, "float32"))
            for m in (matches if len(queries) > 1 else [matches])
        ]


def open_index(table: EmbeddingTable, rebuild: bool = False) -> NeighborIndex | None:
    """Opens the index beside a table, and builds it first if there is none or the table is newer.

    Args:
        table: A table of vectors.
        rebuild: Whether to build the index in any case.

    Returns:
        The index; None for a table of fewer than 10 000 rows, which is searched faster without.

    Raises:
        ImportError: If USearch is not installed.
        ValueError: If another process builds the index.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        index = retrieval.open_index(table)
        index.about["recall"]  # {'64': 0.9965}
        ```
    """
    if len(table) < EXACT_ROWS:
        return None
    folder, about = pathlib.Path(f"{table.path}.index"), identity(table)
    if rebuild or not _is_of(folder, about):
        with claimed_output(folder, "an index", "Wait until it ends, or give --exact"):
            graph, measured = build_graph(table)
            with replacing_folder(folder) as new:
                graph.save(os.fspath(new / "graph.usearch"))
                (new / "index.json").write_text(json.dumps(about | measured, indent=2))
    return NeighborIndex(table, folder)


def identity(table: EmbeddingTable) -> dict[str, Any]:
    """What changes when a table is written again."""
    stat = os.stat(table.path)
    return {"table_bytes": stat.st_size, "table_time_ns": stat.st_mtime_ns, "rows": len(table)}


def _is_of(folder, about):
    file = folder / "index.json"
    try:
        return about.items() <= read_json(file, About).items()
    except (FileNotFoundError, ValueError):  # none, or a damaged one, which is built again
        return False


def build_graph(table: EmbeddingTable) -> tuple[Any, dict[str, Any]]:
    """Builds the graph of a table, and measures how many candidates a search needs.

    Returns:
        USearch's index, and the fields of `NeighborIndex.about` that describe it.
    """
    graph = _usearch().Index(
        ndim=table.shape[0],
        metric="ip",
        dtype={"float32": "f32", "float16": "f16"}[table.description["dtype"]],
        connectivity=CONNECTIVITY,
        expansion_add=EXPANSION_ADD,
    )
    numbers = np.sort(np.random.default_rng(0).permutation(len(table))[:SAMPLE])
    vectors, present = table.embeddings(numbers)
    numbers, vectors = numbers[present], unit_length(vectors[present])
    truth = [Neighbors(np.empty(0, "int64"), np.empty(0, "float32")) for _ in numbers]
    for start, piece, present in table.pieces():
        (rows,) = np.nonzero(present)
        rows = rows[~np.isin(rows + start, numbers)]
        piece = unit_length(piece[rows])
        graph.add(rows + start, piece, threads=machine.cores())
        similarities = vectors @ piece.T
        truth = [_merged(t, rows + start, s, RECALL_AT) for t, s in zip(truth, similarities)]
    recalls: dict[int, float] = {}
    for expansion in EXPANSIONS:
        graph.expansion_search = expansion
        keys = graph.search(vectors, RECALL_AT).keys
        shares = [np.isin(t.rows, k).mean() for t, k in zip(truth, keys)]
        recalls[expansion] = round(float(np.mean(shares)), 4)
        if recalls[expansion] >= RECALL:
            break
    graph.add(numbers, vectors)
    enough = [expansion for expansion, recall in recalls.items() if recall >= RECALL]
    return graph, {
        "expansion": enough[0] if enough else None,
        "recall": recalls,
        "connectivity": CONNECTIVITY,
        "expansion_add": EXPANSION_ADD,
    }


def _usearch():
    return extras.require("usearch.index", extra="search", purpose="An index of embeddings")
