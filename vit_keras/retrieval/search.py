"""Searches a table of embeddings for the most similar pictures: in all rows, or with an index."""

import functools
import html
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from vit_keras import data, weights
from vit_keras.evaluation import output_files as formats
from vit_keras.evaluation.file_predictions import read_picture
from vit_keras.evaluation.probes import unit_length
from vit_keras.retrieval import tables
from vit_keras.retrieval.embedder import Embedder, embed_batches, open_embedder
from vit_keras.retrieval.tables import EmbeddingTable, Picture, PictureList, check_searchable
from vit_keras.support import extras, machine
from vit_keras.support.checks import differences
from vit_keras.support.command_line import on_one_line
from vit_keras.support.files import claimed_output, replacing
from vit_keras.weights.weight_file import open_weight_file

GRAPH = {"metric": "ip", "connectivity": 16}  # neighbors per node; the bottom layer may have 32
CANDIDATES = {"expansion_add": 128, "expansion_search": 1024}  # when adding a node, and in a search
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
        queries: Q vectors of any nonzero length, `(Q, D)`.
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
        rows = np.hstack([rows, np.broadcast_to(numbers, (len(queries), len(numbers)))])
        similarities = np.hstack([similarities, queries @ vectors.T])
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
        path = f"{table.path}.index"
        tables.read_seal(path, "Build it again with --build")
        with open(path, "rb") as file:
            file.seek(-(tables.DIGITS + len(tables.SEAL) + tables.DIGITS), os.SEEK_END)
            self.made_of = file.read(tables.DIGITS).decode()
        self._graph = extras.require("usearch.index").Index.restore(path, view=True)

    def search(self, queries: np.ndarray, count: int) -> list[Neighbors]:
        """Finds the rows nearest to each of `queries` `(Q, D)`, approximating `exact_neighbors`."""
        self._graph.expansion_search = CANDIDATES["expansion_search"] * max(1, -(-count // MANY))
        matches = self._graph.search(unit_length(queries), count)
        return [
            Neighbors(np.asarray(m.keys, "int64"), 1 - np.asarray(m.distances, "float32"))
            for m in (matches if len(queries) > 1 else [matches])
        ]


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
    path = f"{table.path}.index"
    if not rebuild and os.path.exists(path):
        index = NeighborIndex(table)
        if index.made_of == table.sha256:
            return index
    with claimed_output(path, "an index", "Wait until it ends, or give --exact"):
        index_of, dtype = extras.require("usearch.index").Index, table.description["dtype"]
        graph = index_of(ndim=table.shape[0], dtype=dtype, **GRAPH, **CANDIDATES)
        for rows, vectors in table.unit_vectors():
            graph.add(rows, vectors, threads=machine.cores())
        with replacing(path) as temporary:
            graph.save(temporary)
            with open(temporary, "r+b") as file:  # adds the table's SHA-256, and the file's own
                file.seek(0, os.SEEK_END)
                file.write(table.sha256.encode() + tables.SEAL + b"0" * tables.DIGITS)
                tables.seal(file)
    return NeighborIndex(table)


DECIDES = ("weights", "layer", "tokens", "image_size", "channels", "preprocessing")
AHEAD = 4  # answers whose pictures are read ahead for a page
COLUMNS = {"query": "string", "rank": "int32", "path": "string", "label": "string"}
COLUMNS |= {"row": "int64", "similarity": "float32", "error": "string"}


class Match(NamedTuple):
    """A picture that is similar to the query.

    Attributes:
        row: Its row in the table.
        picture: Its path, label and split.
        similarity: The cosine similarity of the two embeddings, at most 1.

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


class Answer(NamedTuple):
    """The result of a search for one query.

    Attributes:
        query: The query picture; in a search by text, its `path` is the text.
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
        model: The path of the model, if it has moved.

    Raises:
        FileNotFoundError: If there is no model.
        ValueError: If the model at this path is a different one (the message lists the differences)
            or if neither `model` nor the table gives a path.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        embedder = retrieval.open_query_embedder(table, "moved/run")
        ```
    """
    made, path = table.description, model or table.description.get("model")
    if not path:
        raise ValueError(f"{table.path!r} does not say which model made it. Give its path")
    choice = {"layer": made.get("layer"), "tokens": made.get("tokens", "pool")}
    embedder = open_embedder(path, made.get("image_size"), **choice)
    if changes := differences(made, embedder.description, DECIDES):
        raise ValueError(
            f"A search needs the model that made the table. Received: {os.fspath(path)!r} for "
            f"{table.path!r} ({'; '.join(changes)}). Give the right --model, or embed again"
        )
    return embedder


def search_rows(
    table: EmbeddingTable,
    rows: Sequence[int],
    *,
    count: int = 5,
    index: NeighborIndex | None = None,
) -> list[Answer]:
    """Finds the pictures of a table that are most similar to some of its own pictures.

    Args:
        table: A table of vectors.
        rows: The numbers of the rows, from 0.
        count: The largest number of matches per query.
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
    check_searchable(table)
    if rows and not 0 <= min(rows) <= max(rows) < len(table):
        raise ValueError(f"`rows` must lie in [0, {len(table)}). Received: rows={list(rows)}")
    vectors, present = table.embeddings(rows)
    errors = [None if known else f"Row {row} has no embedding" for row, known in zip(rows, present)]
    answers = _answers(table, index, count + 1, table.pictures(rows), vectors, errors)
    without = lambda row, matches: tuple([m for m in matches if m.row != row][:count])
    return [a._replace(matches=without(row, a.matches)) for row, a in zip(rows, answers)]


def search_texts(
    table: EmbeddingTable,
    texts: Sequence[str],
    *,
    without: Sequence[str] = (),
    model: str | os.PathLike | None = None,
    count: int = 5,
    index: NeighborIndex | None = None,
) -> list[Answer]:
    """Finds the pictures of a table that match texts, with the text tower of the table's model.

    Args:
        table: A table of the embeddings that the model's texts are compared with: from a CLIP with
            `layer="head"`, from a SigLIP with the default layer.
        texts: The texts, one query each.
        without: Texts of what should be absent; their mean embedding is subtracted from each query.
        model: The folder of both towers and the tokenizer, if it has moved.
        count: The largest number of matches per query.
        index: From `open_index`; None to compare all rows.

    Returns:
        One `Answer` per text; its `query.path` is the text.

    Raises:
        FileNotFoundError: If there is no model, or no tokenizer beside it.
        ValueError: If the model is a different one or has no text tower, or if the table holds
            other embeddings.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        (answer,) = retrieval.search_texts(table, ["a red car"], without=["at night"])
        ```
    """
    open_query_embedder(table, model)  # the model that made the table, or an error
    made = table.description
    path = model or made["model"]
    with open_weight_file(path) as file:
        layer = "head" if file.arguments.get("num_classes") else None  # a projection
    if (made["layer"], made["tokens"]) != (layer, "pool"):
        option = "with --layer head" if layer else "without --layer and --tokens"
        raise ValueError(
            f"A search by text needs embeddings of the whole tower. Received: {table.path!r} "
            f"with layer={made['layer']!r}, tokens={made['tokens']!r}. Embed the pictures {option}"
        )
    vectors = unit_length(weights.embed_labels(path, [*texts, *without]).embeddings)
    queries = vectors[: len(texts)]
    if without:
        queries = queries - vectors[len(texts) :].mean(axis=0)
    pictures, errors = [*map(Picture, texts)], [None] * len(texts)
    return [*_answers(table, index, count, pictures, queries, errors)]


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
    """Finds the pictures of a table that are most similar to picture files.

    Args:
        table: A table of vectors.
        embedder: From `open_query_embedder`.
        paths: The files, such as those from `data.expand_pictures`.
        count: The largest number of matches per query.
        index: From `open_index`; None to compare all rows.
        batch: The number of pictures per call of the embedder.
        on_error: As in `EmbeddingJob`.

    Returns:
        An iterator of one `Answer` per path.

    Raises:
        ValueError, OSError: As for `EmbeddingJob`, or if the table holds patches.

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        embedder = retrieval.open_query_embedder(table)
        index = retrieval.open_index(table)
        for answer in retrieval.search_pictures(table, embedder, ["cat.jpg"], index=index):
            print(answer.matches[0].picture.path)
        ```
    """
    check_searchable(table)
    named = (Picture(os.fspath(path)) for path in paths)
    pictures = PictureList(named, lambda number, path, channels: read_picture(embedder, path))
    batches = embed_batches(embedder, pictures, batch=batch, on_error=on_error)
    return (answer for made in batches for answer in _answers(table, index, count, *made))


def _answers(table, index, count, queries, vectors, errors) -> Iterator[Answer]:
    """Yields the answer to each query; a query with an error has no matches."""
    present = np.array([error is None for error in errors], bool)
    search = index.search if index else functools.partial(exact_neighbors, table)
    nearest = iter(search(vectors[present], count) if present.any() else ())
    for query, error in zip(queries, errors):
        rows, similarities = next(nearest) if error is None else ((), ())
        matches = map(Match, map(int, rows), table.pictures(rows), map(float, similarities))
        yield Answer(query, tuple(matches), error)


def write_answers(
    answers: Iterable[Answer],
    file: IO[bytes],
    form: str,
    *,
    title: str = "Search",
    folder: str = "",
) -> None:
    """Writes the answers of a search.

    Args:
        answers: From `search_pictures` or `search_rows`.
        file: The open file.
        form: "table" is a line of text for each match, below its query. "csv" and "parquet" have a
            row for each match, with the columns query, rank, path, label, row, similarity and
            error. "jsonl" has an object for each query. "html" is a self-contained page of the
            pictures.
        title: The heading of a page.
        folder: The folder that relative paths start from, if not the working directory.

    Raises:
        ImportError: If PyArrow is not installed, for "parquet".

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        with open("page.html", "wb") as file:
            retrieval.write_answers(retrieval.search_rows(table, [0, 1]), file, "html")
        ```
    """
    shown: Iterable[Any] = answers
    if form == "html":  # threads read the pictures
        shown = machine.read_ahead(functools.partial(_section, folder), answers, AHEAD)
    shows: dict[str, Callable] = {"table": _text, "jsonl": _fields, "html": str}
    formats.write_answers(shown, file, form, shows.get(form, _rows), COLUMNS, title)


def _text(answer):
    lines = [f"{answer.query.path}:{f' {answer.error}' if answer.error else ''}"]
    for match in answer.matches:
        label = f"  {match.picture.label}" if match.picture.label is not None else ""
        lines.append(f"  {match.similarity:6.3f}  {match.picture.path}{label}")
    return "\n".join(map(on_one_line, lines))


def _fields(answer):
    matches = [
        {"path": x.path, "label": x.label, "row": row, "similarity": formats.shortest(similarity)}
        for row, x, similarity in answer.matches
    ]
    return {"query": answer.query.path, "matches": matches, "error": answer.error}


def _rows(answer):
    fields = _fields(answer)
    matches = fields.pop("matches")
    return [{**fields, "rank": rank, **match} for rank, match in enumerate(matches, 1)] or [fields]


def _section(folder, answer):
    """Formats the query and its matches as HTML."""
    error = f'<p class="error">{html.escape(answer.error)}</p>\n' if answer.error else ""
    figures = [f'<figure class="query">\n{_picture(folder, answer.query)}{error}</figure>\n']
    for match in answer.matches:
        share = f"{100 * max(0.0, match.similarity):.1f}%"
        value = formats.shortest(match.similarity)
        figures.append(
            f'<figure data-similarity="{value}">\n{_picture(folder, match.picture)}'
            f'<data value="{value}" style="--share:{share}">{match.similarity:.3f}</data>\n'
            "</figure>\n"
        )
    return f"<section>\n{''.join(figures)}</section>\n"


def _picture(folder, picture: Picture):
    """Formats the picture, if its file can be read, with its name and label."""
    path, name = html.escape(picture.path), html.escape(os.path.basename(picture.path))
    label = "" if picture.label is None else f" <i>{html.escape(picture.label)}</i>"
    file = picture.path if os.path.exists(picture.path) else os.path.join(folder, picture.path)
    try:
        pixels = data.thumbnail(data.read_image(file, None), formats.PICTURE_PX)
        image = formats.picture_html(pixels)
    except (OSError, ValueError):
        image = '<div class="missing">no picture</div>\n'
    return f'{image}<figcaption title="{path}"><b>{name}</b>{label}</figcaption>\n'
