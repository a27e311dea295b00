"""Writes answers about pictures one by one: as text, CSV, JSON lines, Parquet, or one HTML page."""

import base64
import csv
import dataclasses
import html
import io
import itertools
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any

import numpy as np

from vit_keras import extras
from vit_keras.data.pillow_images import pillow_image

TEMPLATE = pathlib.Path(__file__).with_name("page.html")
MARKER = "<!-- answers -->\n"  # where the template has the answers
PICTURE_PX = 256  # the longer side of the pictures in a page's file
SHOWN_PX = 192  # the longer side on the page
SMALL_PX = 64  # pictures up to this side are enlarged with visible pixels


@dataclasses.dataclass(frozen=True)
class Layout:
    """How one answer looks in each format.

    Attributes:
        columns: The columns of a table and Arrow's names of their types.
        rows: Maps an answer to its rows of a table; a missing column is null.
        fields: Maps an answer to its JSON.
        text: Maps an answer to its lines for a terminal.
        page: Maps an answer to its HTML.
    """

    columns: Mapping[str, str]
    rows: Callable[[Any], Iterable[Mapping[str, Any]]]
    fields: Callable[[Any], Mapping[str, Any]]
    text: Callable[[Any], str]
    page: Callable[[Any], str]


def write_answers(
    answers: Iterable[Any], file: IO[bytes], form: str, layout: Layout, title: str
) -> None:
    """Writes each answer before it takes the next one; Parquet is written 4096 rows at a time.

    Args:
        answers: What `layout` takes.
        file: The open file.
        form: "table" (text), "csv", "jsonl", "parquet", or "html" (a page that needs no other file
            and no network).
        layout: How an answer looks.
        title: The heading of a page.

    Raises:
        ImportError: If PyArrow is not installed, for "parquet".
    """
    if form in WRITERS:
        rows = itertools.chain.from_iterable(map(layout.rows, answers))
        return WRITERS[form](file, layout.columns, rows)
    dump = lambda answer: json.dumps(layout.fields(answer), ensure_ascii=False)
    head, foot = _template(title) if form == "html" else ("", "")
    write, end = {"table": (layout.text, "\n"), "jsonl": (dump, "\n"), "html": (layout.page, "")}[
        form
    ]
    for text in itertools.chain([head], (write(answer) + end for answer in answers), [foot]):
        if text:
            file.write(text.encode("utf-8", "backslashreplace"))


def _template(title):
    return TEMPLATE.read_text("utf-8").replace("{title}", html.escape(title)).split(MARKER)


def _write_csv(file, columns, rows):
    """Writes each row as it comes. Numbers have the digits of their type, and null is empty."""
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow(_csv_text(row.get(name), kind) for name, kind in columns.items())
    finally:
        text.detach()


def _csv_text(value, kind):
    if value is None:
        return ""
    if kind == "bool":
        return str(bool(value)).lower()
    return str(value if kind == "string" else np.dtype(kind).type(value))


def _write_parquet(file, columns, rows):
    purpose = {"extra": "tables", "purpose": "Writing a Parquet file"}
    parquet = extras.require("pyarrow.parquet", **purpose)
    arrow = extras.require("pyarrow", **purpose)
    schema = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in columns.items()])
    rows = iter(rows)
    with parquet.ParquetWriter(file, schema) as writer:
        while chunk := list(itertools.islice(rows, 4096)):
            writer.write_batch(arrow.RecordBatch.from_pylist(chunk, schema))


# Tables: functions of the open file, the columns, and the rows.
WRITERS: dict[str, Callable[[IO[bytes], Mapping[str, str], Iterable[Any]], None]] = {
    "parquet": _write_parquet,
    "csv": _write_csv,
}


def utf8(path: str | os.PathLike) -> str:
    """A path with an escape such as `\\udcff` for each byte that is not UTF-8."""
    return os.fspath(path).encode("utf-8", "backslashreplace").decode()


def shortest(value: float) -> float:
    """The float with the fewest digits among those that are the same in float32."""
    return float(str(np.float32(value)))


def picture_html(pixels: np.ndarray, layer: str = "") -> str:
    """A picture as HTML that holds its pixels, with another layer of HTML over it."""
    sides = np.array(pixels.shape[:2])
    height, width = np.maximum(1, np.round(sides * SHOWN_PX / sides.max())).astype(int)
    kind = "picture small" if sides.max() <= SMALL_PX else "picture"
    return (
        f'<div class="{kind}" style="width:{width}px;height:{height}px">'
        f'<img src="{data_url(pixels, "jpeg", quality=85)}" alt="">{layer}</div>\n'
    )


def data_url(pixels: np.ndarray, kind: str, **options: Any) -> str:
    """A picture as text, which a page holds itself."""
    buffer = io.BytesIO()
    pillow_image().fromarray(pixels).save(buffer, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
