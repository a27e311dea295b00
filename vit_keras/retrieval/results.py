"""The formats in which the answers of a search are written, one after the other as they come."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import numpy as np

from vit_keras.evaluation.predictions import write_table
from vit_keras.retrieval.page import write_page
from vit_keras.retrieval.search import Answer
from vit_keras.retrieval.tables import utf8

TYPES = {
    "query": "string",
    "rank": "int32",
    "path": "string",
    "label": "string",
    "row": "int64",
    "similarity": "float32",
    "error": "string",
}


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
        form: A name in `FORMATS`. "table" is a line of text for each match, below its query. "csv"
            and "parquet" have a row for each match, with the columns query, rank, path, label, row,
            similarity and error. "jsonl" has an object for each query. "html" is a page of the
            pictures, which needs no other file and no network.
        title: The heading of a page.
        folder: Where relative paths of pictures begin that are not in the working directory.

    Raises:
        ImportError: If PyArrow is not installed, for "parquet".

    Example:
        ```python
        table = retrieval.EmbeddingTable("features.parquet")
        with open("page.html", "wb") as file:
            retrieval.write_answers(retrieval.search_rows(table, [0, 1]), file, "html")
        ```
    """
    FORMATS[form](answers, file, title=title, folder=folder)


def _write_text(answers, file, **_):
    for answer in answers:
        _write_line(file, f"{answer.query.path}:{f' {answer.error}' if answer.error else ''}")
        for match in answer.matches:
            label = f"  {match.picture.label}" if match.picture.label is not None else ""
            _write_line(file, f"  {match.similarity:6.3f}  {match.picture.path}{label}")


def _write_jsonl(answers, file, **_):
    for answer in answers:
        rows = [
            {
                "path": m.picture.path,
                "label": m.picture.label,
                "row": m.row,
                "similarity": _shortest(m),
            }
            for m in answer.matches
        ]
        fields = {"query": answer.query.path, "matches": rows, "error": answer.error}
        _write_line(file, json.dumps(fields, ensure_ascii=False))


def _write_csv(answers, file, **_):
    write_table(file, ".csv", TYPES, _rows(answers))


def _write_parquet(answers, file, **_):
    write_table(file, ".parquet", TYPES, _rows(answers))


def _write_html(answers, file, *, title, folder):
    write_page(answers, file, title, folder)


FORMATS: dict[str, Callable[..., None]] = {
    "table": _write_text,
    "csv": _write_csv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
    "html": _write_html,
}


def _rows(answers) -> Iterator[dict[str, Any]]:
    for answer in answers:
        query = {"query": utf8(answer.query.path), "error": answer.error}
        if not answer.matches:
            yield query
        for rank, match in enumerate(answer.matches, 1):
            picture = match.picture
            where = {"path": utf8(picture.path), "label": picture.label, "row": match.row}
            yield query | where | {"rank": rank, "similarity": match.similarity}


def _shortest(match) -> float:
    """The float with the fewest digits among those that are the same in float32."""
    return float(str(np.float32(match.similarity)))


def _write_line(file, line):
    file.write(f"{line}\n".encode("utf-8", "backslashreplace"))
