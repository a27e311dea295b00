"""The result of a study: a table, a picture and sentences about them, as files and as text."""

import csv
import dataclasses
import functools
import io
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from vit_keras.evaluation import mean_and_std
from vit_keras.support.files import write_text

PUBLISHED = pathlib.Path(__file__).with_name("published.yaml")


class Column(NamedTuple):
    """A column of a table: its name, with the unit, and the format of its numbers."""

    name: str
    format_spec: str = ""


class Mean(NamedTuple):
    """The mean over runs and its standard deviation (n − 1), which is None for a single run."""

    mean: float
    std: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Mean":
        """The mean and the standard deviation of `values`."""
        mean, std = mean_and_std(values)
        return cls(mean, std if len(values) > 1 else None)

    def __format__(self, spec: str) -> str:
        return format(self.mean, spec) + ("" if self.std is None else f" ± {self.std:{spec}}")


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a study.

    Attributes:
        name: The study's name, such as "table1".
        columns: The table's columns. Names begin with "ours" or "paper" where both have a value.
        rows: One value a column: a text, a number, a `Mean`, or None where there is no value.
        draw: Writes the picture to a path.
        finding: What our rows show, in sentences that are computed from them.
        setup: How the experiment differs from the paper's; "" where it does not.

    Raises:
        ValueError: a row does not have one value for each column.
    """

    name: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    draw: Callable[[pathlib.Path], None]
    finding: str
    setup: str = ""

    def __post_init__(self):
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"A row must have one value for each of {len(self.columns)} columns. "
                    f"Received: {list(row)}"
                )

    @property
    def title(self) -> str:
        """The title, such as "Table 1. Variants of the Vision Transformer"."""
        return title_of(self.name)

    @property
    def published(self) -> Mapping[str, Any]:
        """What the paper prints for this table or figure."""
        return published(self.name)


@functools.cache
def _all_published():
    return yaml.safe_load(PUBLISHED.read_text())


def published(name: str) -> Mapping[str, Any]:
    """The entry of published.yaml for a table or figure: what the paper prints."""
    return _all_published()[name]


def title_of(name: str) -> str:
    """The title of a table or figure: "Table 1. Variants of the Vision Transformer"."""
    kind, number = name.rstrip("0123456789"), name.lstrip("abcdefghijklmnopqrstuvwxyz")
    return f"{kind.capitalize()} {number}. {published(name)['title']}"


def rows_of(name: str) -> list[dict[str, Any]]:
    """The published rows of a table or figure, each as `{column: value}`."""
    entry = published(name)
    return [dict(zip(entry["columns"], row, strict=True)) for row in entry["rows"]]


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
