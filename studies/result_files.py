"""Results as files and as text: CSV, PNG, Markdown and tables for a terminal."""

import csv
import io
import pathlib
from typing import Any

from studies.results import Mean, Result
from vit_keras.files import write_text


def write_result(result: Result, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes NAME.csv, NAME.png and NAME.md to `folder`.

    Returns:
        The three paths, in this order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table, picture, section = (
        folder / f"{result.name}.{suffix}" for suffix in ("csv", "png", "md")
    )
    write_text(table, as_csv(result))
    result.draw(picture)
    write_text(section, as_markdown(result))
    return [table, picture, section]


def as_csv(result: Result) -> str:
    """The table as CSV, with all digits.

    A column "x" of means is followed by a column "x std" of their standard deviations.
    """
    with_std = [
        any(isinstance(row[i], Mean) for row in result.rows) for i in range(len(result.columns))
    ]
    header = []
    for column, has_std in zip(result.columns, with_std):
        header += [column.name, f"{column.name} std"] if has_std else [column.name]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in result.rows:
        cells: list[Any] = []
        for value, has_std in zip(row, with_std):
            cells += _mean_and_std(value) if has_std else [value]
        writer.writerow(["" if cell is None else cell for cell in cells])
    return text.getvalue()


def _mean_and_std(value):
    return list(value) if isinstance(value, Mean) else [value, None]


def format_cell(value: Any, format_spec: str) -> str:
    """The text of a cell: "-" for None, texts unchanged, numbers by `format_spec`."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else format(value, format_spec)


def format_rows(result: Result) -> list[list[str]]:
    """The texts of all cells, row by row."""
    return [
        [format_cell(value, column.format_spec) for value, column in zip(row, result.columns)]
        for row in result.rows
    ]


def is_text(result: Result, index: int) -> bool:
    """Whether a column has texts, which are aligned to the left."""
    return any(isinstance(row[index], str) for row in result.rows)


def as_markdown(result: Result) -> str:
    """A section of Markdown: the title, the table, the remarks and the picture."""
    sections = [f"## {result.title}", _markdown_table(result).rstrip()]
    sections += [f"{label}: {text}" for label, text in remarks(result)]
    sections += [f"![{result.title}]({result.name}.png)"]
    return "\n\n".join(sections) + "\n"


def _markdown_table(result):
    alignment = ["---" if is_text(result, i) else "--:" for i in range(len(result.columns))]
    lines = [[column.name for column in result.columns], alignment, *format_rows(result)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def remarks(result: Result) -> list[tuple[str, str]]:
    """The sentences below the table, as (label, text)."""
    entry = result.published
    return [
        ("The paper", f"{entry['finding'].strip()} ({entry['place']}.)"),
        ("Ours", result.finding),
        *([("Setup", result.setup)] if result.setup else []),
    ]


def as_text(result: Result) -> str:
    """The table and the remarks as text for a terminal."""
    lines = [[column.name for column in result.columns], *format_rows(result)]
    widths = [max(map(len, cells)) for cells in zip(*lines)]
    sides = ["<" if is_text(result, i) else ">" for i in range(len(widths))]
    align = lambda cell, width, side: f"{cell:{side}{width}}"
    table = ["  ".join(map(align, line, widths, sides)).rstrip() for line in lines]
    return "\n".join([*table, *(f"{label}: {text}" for label, text in remarks(result))])
