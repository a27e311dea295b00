"""The label columns of a table: classes, labels or numbers."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_keras.config import DataConfig

YES_OR_NO = (0, 1)


class Labels(NamedTuple):
    """The labels of a table's rows.

    Attributes:
        kind: A name in `vit_keras.tasks.KINDS`.
        names: The names of the outputs.
        values: `(N,)` int32 for classes; `(N, K)` float32 with NaN for unknown values otherwise.
    """

    kind: str
    names: tuple[str, ...]
    values: np.ndarray


def label_columns(config: DataConfig) -> tuple[str, ...]:
    """Returns the columns that hold labels."""
    return tuple(config.label_columns) or ("label",)


def read_labels(path: str, columns: dict[str, list], config: DataConfig, task: str) -> Labels:
    """Reads the labels of a table.

    Args:
        path: The table, for messages.
        columns: The values by column.
        config: Names the columns, and the separator of several labels in one cell.
        task: A name in `vit_keras.tasks.KINDS`, or "auto": a column of lists, or several columns
            of 0 and 1, hold labels; fractions, or several columns of numbers, are numbers; anything
            else in one column is a class.

    Raises:
        ValueError: If the values do not fit the task; the message names the first such row.
    """
    names = label_columns(config)
    values = {name: columns[name] for name in names}
    kind = _guess(values) if task == "auto" else task
    if kind == "classes" and len(names) > 1:
        raise ValueError(
            "Classes come from one column. Received: data.label_columns="
            f"{list(names)} for {path!r}. Give one column, or --task labels or --task numbers"
        )
    return READERS[kind](path, values, config)


def _guess(values):
    if len(values) == 1:
        (cells,) = values.values()
        if any(isinstance(cell, list) for cell in cells):
            return "labels"
        is_fraction = lambda cell: isinstance(cell, float) and not cell.is_integer()
        return "numbers" if any(map(is_fraction, cells)) else "classes"
    cells = [cell for column in values.values() for cell in column if not _is_empty(cell)]
    return "labels" if all(cell in YES_OR_NO for cell in cells) else "numbers"


def _is_empty(cell):
    return cell is None or cell == ""


def _classes(path, values, config):
    ((column, cells),) = values.items()
    check_filled(path, column, cells)
    names = sorted(set(cells))  # numbers by value, text by letters
    order = {name: i for i, name in enumerate(names)}
    return Labels("classes", tuple(map(str, names)), np.array([order[c] for c in cells], "int32"))


def check_filled(path: str, column: str, cells: Sequence[Any]) -> None:
    """Raises ValueError if a cell of a column is empty."""
    rows = [i for i, cell in enumerate(cells) if _is_empty(cell)]
    if rows:
        raise ValueError(
            f"Every row of {path!r} needs a {column}. Received: {len(rows)} without one, such as "
            f"row {rows[0]}"
        )


def _labels(path, values, config):
    if len(values) > 1:
        table = _numeric(path, values, "0, 1 or nothing", lambda cell: cell in YES_OR_NO)
        return Labels("labels", tuple(values), table)
    ((_, cells),) = values.items()
    sets = [_names_in(cell, config.label_separator) for cell in cells]
    names = sorted({name for present in sets if present is not None for name in present})
    nothing = np.full(len(names), np.nan)
    rows = [nothing if s is None else np.isin(names, [*s]) for s in sets]
    return Labels("labels", tuple(names), np.array(rows, "float32"))


def _names_in(cell, separator):
    """The labels in a cell; None if they are unknown."""
    if cell is None:
        return None
    members = cell if isinstance(cell, list) else str(cell).split(separator)
    return {str(member).strip() for member in members} - {""}


def _numbers(path, values, config):
    table = _numeric(path, values, "a number or nothing", lambda cell: np.isfinite(cell))
    return Labels("numbers", tuple(values), table)


def _numeric(path, values, rule, holds):
    """The columns as `(N, K)` float32, with NaN for empty cells."""
    table = np.full((len(next(iter(values.values()))), len(values)), np.nan, "float32")
    for k, (column, cells) in enumerate(values.items()):
        for row, cell in enumerate(cells):
            if _is_empty(cell):
                continue
            if not isinstance(cell, int | float) or not holds(cell):
                raise ValueError(
                    f"The column {column!r} of {path!r} must hold {rule} in each row. "
                    f"Received: {cell!r} in row {row}"
                )
            table[row, k] = cell
    return table


READERS: dict[str, Callable[..., Labels]] = {
    "classes": _classes,
    "labels": _labels,
    "numbers": _numbers,
}
