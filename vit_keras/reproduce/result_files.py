"""A study's result as files: CSV, PNG and a fragment of Markdown."""

import csv
import io
import pathlib
from typing import Any

from vit_keras.files import write_text
from vit_keras.reproduce.results import Mean, Result


def write_result(result: Result, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes NAME.csv, NAME.png and NAME.md to `folder`, each at once; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    table, picture, fragment = (folder / f"{result.name}.{end}" for end in ("csv", "png", "md"))
    write_text(table, as_csv(result))
    result.draw(picture)
    write_text(fragment, as_markdown(result))
    return [table, picture, fragment]


def as_csv(result: Result) -> str:
    """All figures in full; a column of means is followed by that of their deviations."""
    with_std = [
        any(isinstance(row[i], Mean) for row in result.rows) for i in range(len(result.columns))
    ]
    header = []
    for column, spread in zip(result.columns, with_std):
        header += [column.name, f"{column.name} std"] if spread else [column.name]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(header)
    for row in result.rows:
        cells = []
        for value, spread in zip(row, with_std):
            cells += _pair(value) if spread else [value]
        writer.writerow(["" if cell is None else cell for cell in cells])
    return written.getvalue()


def _pair(value):
    return list(value) if isinstance(value, Mean) else [value, None]


def shown(value: Any, form: str) -> str:
    """A cell as text: a dash for None, text as it is, numbers by `form`."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else format(value, form)


def is_text(result: Result, index: int) -> bool:
    """Whether a column is text, which stands to the left."""
    return any(isinstance(row[index], str) for row in result.rows)


def _table(result):
    sides = ["---" if is_text(result, i) else "--:" for i in range(len(result.columns))]
    lines = [[column.name for column in result.columns], sides]
    for row in result.rows:
        lines.append([shown(value, column.form) for value, column in zip(row, result.columns)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def as_markdown(result: Result) -> str:
    """A section: title, table, what the paper finds and what this run does, the picture."""
    parts = [f"## {result.title}", _table(result).rstrip()]
    parts += [f"{label}: {text}" for label, text in remarks(result)]
    parts += [f"![{result.title}]({result.name}.png)"]
    return "\n\n".join(parts) + "\n"


def remarks(result: Result) -> list[tuple[str, str]]:
    """What stands below the table, as (label, text)."""
    found = result.published
    return [
        ("The paper", f"{found['finding'].strip()} ({found['place']}.)"),
        ("Ours", result.finding),
        *([("Made smaller", result.smaller)] if result.smaller else []),
    ]


def as_text(result: Result) -> str:
    """The table and the remarks for a terminal."""
    lines = [[column.name for column in result.columns]]
    for row in result.rows:
        lines.append([shown(value, column.form) for value, column in zip(row, result.columns)])
    widths = [max(map(len, cells)) for cells in zip(*lines)]
    left = [is_text(result, i) for i in range(len(widths))]
    table = [
        "  ".join(f"{cell:{'<' if text else '>'}{width}}" for cell, width, text in row).rstrip()
        for row in (zip(line, widths, left) for line in lines)
    ]
    return "\n".join([*table, *(f"{label}: {text}" for label, text in remarks(result))])
