"""Searches a table of embeddings for the pictures that are most like others."""

import dataclasses
import os
from collections.abc import Generator, Iterable, Sequence

import numpy as np

from vit_keras.retrieval.batches import embed_batches
from vit_keras.retrieval.embedder import Embedder, open_embedder
from vit_keras.retrieval.neighbors import NeighborIndex, Neighbors, exact_neighbors
from vit_keras.retrieval.picture_lists import Picture, file_reader
from vit_keras.retrieval.tables import EmbeddingTable

DECIDES = ("weights", "layer", "tokens", "image_size", "channels", "preprocessing")


@dataclasses.dataclass(frozen=True)
class Match:
    """A picture that is like the query.

    Attributes:
        row: Its row in the table.
        picture: Its path, label and split.
        similarity: The cosine similarity of both embeddings, at most 1.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        match = retrieval.search_rows(table, [17])[0].matches[0]
        match.row, match.picture.path, match.similarity  # (4, "photos/cat/3.jpg", 0.97)
        ```
    """

    row: int
    picture: Picture
    similarity: float


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a search returns for one query.

    Attributes:
        query: The picture that was searched for.
        matches: The nearest pictures, the most similar first; empty if there is an `error`.
        error: Why the query has no embedding, or None.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        answer = retrieval.search_rows(table, [17], count=3)[0]
        answer.query.path, len(answer.matches)  # ("photos/cat/9.jpg", 3)
        ```
    """

    query: Picture
    matches: tuple[Match, ...] = ()
    error: str | None = None


def open_query_embedder(table: EmbeddingTable, model: str | os.PathLike | None = None) -> Embedder:
    """Opens the model that made a table.

    Args:
        table: A table of embeddings.
        model: Where the model is, if it is no longer where it was.

    Raises:
        FileNotFoundError: If there is no model.
        ValueError: If the model at this place is another one. The message lists the differences.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        embedder = retrieval.open_query_embedder(table, "moved/run")
        ```
    """
    made, path = table.description, model or table.description.get("model", "")
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"The model of {table.path!r} is not at {os.fspath(path)!r}. Give its place with "
            "--model"
        )
    size = made["image_size"]
    embedder = open_embedder(path, (size[0], size[1]), layer=made["layer"], tokens=made["tokens"])
    now = embedder.description
    changes = [
        f"{key}: {made[key]} then, {now[key]} now" for key in DECIDES if made[key] != now[key]
    ]
    if changes:
        raise ValueError(
            "A search needs the model that made the table. Received: "
            f"{os.fspath(path)!r} for {table.path!r} ({'; '.join(changes)}). Give the right one "
            "with --model, or embed the pictures again"
        )
    return embedder


def search_rows(
    table: EmbeddingTable,
    rows: Sequence[int],
    *,
    count: int = 5,
    index: NeighborIndex | None = None,
) -> list[Answer]:
    """Finds the pictures that are most like some pictures of the table, without these themselves.

    Args:
        table: A table of vectors.
        rows: The numbers of the rows, from 0.
        count: The most matches of each.
        index: From `open_index`; None to compare all rows.

    Raises:
        ValueError: If there is no such row, or if the table holds patches.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        for match in retrieval.search_rows(table, [17], count=3)[0].matches:
            print(match.picture.path, match.similarity)
        ```
    """
    _check_count(count)
    check_searchable(table)
    if rows and not 0 <= min(rows) <= max(rows) < len(table):
        raise ValueError(
            f"`rows` must lie in [0, {len(table)}). Received: rows={list(rows)} of {table.path!r}"
        )
    vectors, present = table.embeddings(rows)
    nearest = iter(_neighbors(table, index, vectors[present], count + 1))
    answers = []
    for row, picture, known in zip(rows, table.pictures(rows), present):
        if not known:
            answers.append(Answer(picture, error=f"Row {row} has no embedding"))
            continue
        near = next(nearest)
        others = near.rows != row
        near = Neighbors(near.rows[others][:count], near.similarities[others][:count])
        answers.append(Answer(picture, _matches(table, near)))
    return answers


def search_pictures(
    table: EmbeddingTable,
    embedder: Embedder,
    paths: Iterable[str | os.PathLike],
    *,
    count: int = 5,
    index: NeighborIndex | None = None,
    batch: int = 32,
    on_error: str = "raise",
) -> Generator[Answer, None, None]:
    """Finds the pictures of a table that are most like picture files.

    Args:
        table: A table of vectors.
        embedder: From `open_query_embedder`.
        paths: The files, such as `data.expand_pictures` finds.
        count: The most matches of each.
        index: From `open_index`; None to compare all rows.
        batch: The number of pictures per call of the embedder.
        on_error: As in `EmbeddingJob`.

    Returns:
        An iterator of one `Answer` per path.

    Raises:
        ValueError, OSError: As `EmbeddingJob` does, or if the table holds patches.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        embedder = retrieval.open_query_embedder(table)
        index = retrieval.open_index(table)
        for answer in retrieval.search_pictures(table, embedder, ["cat.jpg"], index=index):
            print(answer.matches[0].picture.path)
        ```
    """
    _check_count(count)
    check_searchable(table)
    pictures = enumerate(Picture(os.fspath(path)) for path in paths)
    batches = embed_batches(
        embedder, pictures, file_reader(embedder.pixels), batch=batch, size=batch, on_error=on_error
    )
    return _search(table, index, batches, count)


def _search(table, index, batches, count):
    for pictures, vectors, errors in batches:
        present = np.array([error is None for error in errors])
        nearest = iter(_neighbors(table, index, vectors[present], count))
        for picture, error in zip(pictures, errors):
            matches = () if error else _matches(table, next(nearest))
            yield Answer(picture, matches, error)


def _neighbors(table, index, vectors, count):
    if not len(vectors):
        return []
    if index is None:
        return exact_neighbors(table, vectors, count)
    return index.search(vectors, count)


def _matches(table, near: Neighbors) -> tuple[Match, ...]:
    pictures = table.pictures(near.rows)
    return tuple(
        Match(int(row), picture, float(similarity))
        for row, picture, similarity in zip(near.rows, pictures, near.similarities)
    )


def check_searchable(table: EmbeddingTable) -> None:
    """Raises ValueError unless a table holds one vector for each picture.

    Example:
        ```python
        retrieval.check_searchable(retrieval.EmbeddingTable("features.parquet"))
        ```
    """
    if len(table.shape) != 1:
        raise ValueError(
            f"A search needs one vector a picture. Received: {table.path!r} with embeddings "
            f"{table.shape}. Embed the pictures with --tokens pool, class or mean"
        )


def _check_count(count):
    if count < 1:
        raise ValueError(f"`count` must be positive. Received: count={count}")
