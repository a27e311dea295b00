"""Reads columns of labels, and defines how each kind is counted, divided and learned."""

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.support.checks import short
from vit_keras.support.tasks import CLASSES, Task

NO_CLASS = -1


def _rarest_label(labels):
    """Returns the rarest label of each picture; K for pictures without any."""
    present = labels == 1
    numbers = np.where(present.any(axis=0), present.sum(axis=0), len(labels) + 1)
    rank = np.where(present, numbers, len(labels) + 2)
    return np.where(present.any(axis=1), rank.argmin(axis=1), labels.shape[1]).tolist()


def _rarer_values(labels):
    """Pairs pictures with their labels, or with the labels they lack if most pictures have them."""
    yes, no = (labels == 1), (labels == 0)
    rarer = np.where(yes.sum(axis=0) <= no.sum(axis=0), yes, no)
    return np.nonzero(np.column_stack([rarer, ~rarer.any(axis=1)]))


def _standardized(label, task, outputs):
    mean, std = np.array(task.mean or 0, "float32"), np.array(task.std or 1, "float32")
    return (label - mean) / std


def _one_hot(label, task, outputs):
    target = np.zeros(outputs, "float32")
    target[label] = 1  # raises if there is no such output
    return target


def _name_labels(label, names):
    """Returns a text for each label, such as "cat", or "cat 70%" and "dog 30%" in a mixture."""
    shares = {name: float(share) for name, share in zip(names, label) if share >= 0.005}
    return [name if share > 0.995 else f"{name} {share:.0%}" for name, share in shares.items()]


def _name_masks(label, names):
    """Names the classes in a mask `(H, W)`, or those that are 1 in `(K,)`."""
    present = label if np.ndim(label) == 1 else np.isin(np.arange(len(names)), label)
    return _name_labels(present, names)


def _learned_boxes(label, task, outputs):
    """Drops the flags of boxes `(M, 6)`; objects with a flag get the class -1."""
    target = label[:, :5].copy()
    target[label[:, 5] != 0, 0] = NO_CLASS
    return target


def _name_boxes(label, names):
    """Names the classes of boxes `(M, 5)` or `(M, 6)`, or those that are 1 in `(K,)`."""
    return _name_masks(label if np.ndim(label) == 1 else label[:, :1], names)


class LabelKind(NamedTuple):
    """How the labels of a split are used. The defaults suit several labels of each picture.

    Attributes:
        counts: Maps labels and K to the number of pictures of each output, `(K,)`.
        strata: Maps labels to one value for each picture; balanced sampling draws each value
            equally often.
        members: Maps labels to pairs of a picture's number and the number of one of its labels, as
            two arrays; a share of each label is held out.
        target: Maps one picture's label to a model's target, given a `Task` and K: `(K,)` float32,
            `(H, W)` int32 for a mask, or `(M, 5)` float32 for boxes.
        texts: Returns texts for the parts of one picture's label, given the names of the outputs.
    """

    counts: Callable[..., np.ndarray] = lambda labels, outputs: np.nansum(labels, 0).astype(int)
    strata: Callable[[np.ndarray], Sequence] = _rarest_label
    members: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] = _rarer_values
    target: Callable[[np.ndarray, Task, int], np.ndarray] = lambda label, task, outputs: label
    texts: Callable[[np.ndarray, Sequence[str]], list[str]] = _name_labels


LABEL_KINDS = {
    "classes": LabelKind(
        counts=lambda labels, outputs: np.bincount(labels, minlength=outputs),
        strata=lambda labels: labels.tolist(),
        members=lambda labels: (np.arange(len(labels)), labels),
        target=_one_hot,
        texts=lambda label, names: [names[int(label)]],
    ),
    "labels": LabelKind(),
    "numbers": LabelKind(
        counts=lambda labels, outputs: (~np.isnan(labels)).sum(axis=0),
        strata=lambda labels: [0] * len(labels),
        members=lambda labels: (np.arange(len(labels)), np.zeros(len(labels), int)),
        target=_standardized,
        texts=lambda label, names: [f"{n} {x:.4g}" for n, x in zip(names, label) if x == x],
    ),
    "masks": LabelKind(
        target=lambda label, task, outputs: label.astype("int32"), texts=_name_masks
    ),
    "boxes": LabelKind(target=_learned_boxes, texts=_name_boxes),
}


def described(kind: str, label: np.ndarray, names: Sequence[str]) -> str:
    """Describes one picture's label, such as "cat, dog 30%", given the names of the outputs."""
    return ", ".join(LABEL_KINDS[kind].texts(label, names)) or "none"


def captions_of(targets: np.ndarray, class_names: Sequence[str], task: Task = CLASSES) -> list[str]:
    """Describes the targets of N images: "cat", "cat 70%, dog 30%", or "age 34".

    Args:
        targets: One-hot or mixed classes, labels, or standardized numbers, `(N, K)`.
        class_names: The K names.
        task: The kind of the targets.

    Example:
        >>> captions_of(np.array([[1.0, 0.0], [0.3, 0.7]]), ["cat", "dog"])
        ['cat', 'cat 30%, dog 70%']
    """
    kind = "labels" if task.kind == "classes" else task.kind  # a mixed image has several classes
    mean, std = np.array(task.mean or 0), np.array(task.std or 1)
    return [described(kind, row, class_names) for row in np.asarray(targets) * std + mean]


YES_OR_NO = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1, "no": 0, "yes": 1}
EMPTY = ("", "na", "n/a", "nan", "null", "none")  # as pandas and R write unknown values
WHOLE = re.compile("0|-?[1-9][0-9]*")
LARGEST = float(np.finfo("float32").max)
COARSE = 0.01  # of the standard deviation of numbers, by which float32 may round them


class Labels(NamedTuple):
    """The labels of a table's rows.

    Attributes:
        kind: A name in `vit_keras.support.tasks.KINDS`.
        names: The names of the outputs; empty without labels.
        values: `(N,)` int32 for classes, with `NO_CLASS` for unknown ones; otherwise `(N, K)`
            float32, with NaN for unknown values. For masks, a function that reads them and
            returns which classes each one contains, `(N, K)`.
        notes: What was found or guessed, one sentence each.
    """

    kind: str
    names: tuple[str, ...]
    values: Any
    notes: tuple[str, ...] = ()


def no_labels(count: int, kind: str = "classes") -> Labels:
    """Returns empty labels, for pictures without labels or with masks that are added later."""
    return Labels(kind, (), np.zeros(count, "int32"))


def text_of(cell: Any) -> str | list | None:
    """Returns a cell as stripped, composed Unicode text, NaN as None, and a list as it is."""
    if cell is None or isinstance(cell, list):
        return cell
    if cell != cell:
        return None
    text = cell.decode(errors="replace") if isinstance(cell, bytes) else str(cell)
    return unicodedata.normalize("NFC", text.strip())


def read_labels(
    where: str, columns: dict[str, list], config: DataConfig, task: str, order: Sequence[str] = ()
) -> Labels:
    """Reads the labels of a table.

    Args:
        where: The table, for messages.
        columns: The cells by column, of any type.
        config: The separator of several labels in one cell, and the texts for unknown ones.
        task: A name in `vit_keras.support.tasks.KINDS`, or "auto": a column of lists, or several
            columns of 0 and 1, hold labels; fractions, or several columns of numbers, are numbers;
            anything else in one column is a class. With "labels", one column of 0 and 1 is a label.
        order: All classes in order; empty for the sorted classes of the column.

    Raises:
        ValueError: If the values do not fit the task; the message names the first such row.
    """
    unknown: set[str] = {*config.unknown}  # type: ignore[misc]
    unknown |= {f"{text}.0" for text in unknown if WHOLE.fullmatch(text)}  # of a Parquet file
    known = lambda text: text if isinstance(text, list) or text not in unknown else None
    values = {name: [known(text_of(cell)) for cell in cells] for name, cells in columns.items()}
    kind, why = (task, "") if task in CELLS else _guess(values, config)
    order = [str(text_of(name)) for name in order or ()]
    if len({*order}) < len(order):
        raise ValueError(f"Classes need different names. Received: {where!r} with {order}")
    takes_lists = len(values) == 1 and kind == "labels"
    if not takes_lists and any(isinstance(cell, list) for *_, cell in _known(values)):
        raise ValueError(
            f"Lists need --task labels and one column. Received: {kind}, {[*values]} of {where!r}"
        )
    if len(values) == 1 and kind == "classes":
        labels = _classes(values, order)
    elif takes_lists and (order or not _are_flags(values)):
        labels = _lists(where, values, config, order)
    else:
        table = _numeric(where, values, kind)
        if kind == "classes":
            wrong = np.flatnonzero((np.nansum(table, axis=1) != 1) | np.isnan(table).any(axis=1))
            if len(wrong):
                raise ValueError(
                    "Several columns can hold classes if exactly one is 1 in each row. "
                    f"Received: {where!r} with {len(wrong):,} other rows, such as row "
                    f"{wrong[0] + 1}. Give one column in data.label_columns, or another --task"
                )
            table = table.argmax(axis=1).astype("int32")
        labels = Labels(kind, (*values,), table)
    return labels._replace(notes=(*labels.notes, f"task: {kind}, since {why}")) if why else labels


def _guess(values, config):
    """Guesses the kind of the labels, and says why."""
    several, cells = len(values) > 1, [*_known(values)]
    column = ", ".join(map(repr, values)) if len(values) < 6 else f"{len(values)} columns"
    if any(isinstance(cell, list) for *_, cell in cells):
        return "labels", f"{column} holds lists"
    numbers = {cell: as_number(cell) for _, _, cell in cells}
    if not several:
        if None not in numbers.values() and any((n or 0) % 1 for n in numbers.values()):
            return "numbers", f"{column} holds fractions"
        what = f"{column} holds {len(numbers)} different texts or whole numbers"
        if any(config.label_separator in cell for cell in numbers):
            what += f"; give --task labels if {config.label_separator!r} separates labels in a cell"
        elif None not in numbers.values() and len(numbers) > 20:
            what += "; give --task numbers if they are amounts"
        return "classes", what
    other = next((row for row in cells if row[2].casefold() not in YES_OR_NO), None)
    if other is None:
        ones = _numeric("", values, "labels").sum(axis=1)
        hint = "; each row has exactly one 1, so --task classes turns them into classes"
        return "labels", f"{column} hold 0 and 1" + (hint if (ones == 1).all() else "")
    name, row, cell = other
    hint = f"; if it stands for unknown, give --task labels --data.unknown={cell}"
    return "numbers", f"{name!r} holds {cell!r} in row {row + 1}{hint if as_number(cell) else ''}"


def _known(values):
    """Yields the column, the row and the text of each cell that is not empty."""
    for name, cells in values.items():
        for row, cell in enumerate(cells):
            if isinstance(cell, list) or (cell is not None and cell.casefold() not in EMPTY):
                yield name, row, cell


def _are_flags(values):
    """Whether the known cells of a column are 0 and 1, so that the column is a label itself."""
    cells = [cell for *_, cell in _known(values)]
    return bool(cells) and all(isinstance(x, str) and x.casefold() in YES_OR_NO for x in cells)


def as_number(text: str) -> float | None:
    """Returns a text as a number; None if it is not one, or not finite in float32.

    Example:
        >>> as_number("1e3"), as_number("nan"), as_number("ten")
        (1000.0, None, None)
    """
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) <= LARGEST and "_" not in text else None


# What several columns, or a column of numbers, hold in each row, and how that is read.
CELLS: dict[str, tuple[str, Callable[[str], float | None]]] = {
    "classes": ("0 or 1", YES_OR_NO.get),
    "labels": ("0, 1 or nothing", YES_OR_NO.get),
    "numbers": ("a number or nothing", as_number),
}


def _classes(values, order):
    (cells,) = values.values()
    order = order or sorted_names({*cells} - {None, ""})
    numbers = {None: NO_CLASS, "": NO_CLASS} | {name: i for i, name in enumerate(order)}
    labels = np.array([numbers[cell] for cell in cells], "int32")
    unknown = (labels == NO_CLASS).sum()
    left = f"{unknown:,} of {len(cells):,} rows have no class and are left out"
    return Labels("classes", tuple(order), labels, (left,) if unknown else ())


def sorted_names(texts: Collection[str]) -> list[str]:
    """Sorts the names of classes; if all are whole numbers, by value.

    Example:
        >>> sorted_names({"10", "9"}), sorted_names({"10", "9", "a"})
        (['9', '10'], ['10', '9', 'a'])
    """
    return sorted(texts, key=int if all(map(WHOLE.fullmatch, texts)) else str)


def _lists(where, values, config, order):
    """Reads labels from a column of lists, or of texts with several labels; None means unknown."""
    ((column, cells),) = values.items()
    for number, cell in enumerate(cells, 1):
        known = [item for item in cell if item is not None] if isinstance(cell, list) else []
        if len({*map(str, known)}) < len(known) or any(isinstance(item, float) for item in known):
            raise ValueError(
                "A list of labels holds names or whole numbers, each once. Received: "
                f"{short(cell)} in row {number} of the column {column!r} of {where!r}. Give each "
                "label, or each number, a column of its own in data.label_columns"
            )
    split = lambda cell: cell.split(config.label_separator) if isinstance(cell, str) else cell
    sets = [None if cell is None else {*map(text_of, split(cell))} - {"", None} for cell in cells]
    names = order or sorted(set().union(*filter(None, sets)))
    columns = {name: k for k, name in enumerate(names)}
    table = np.zeros((len(sets), len(names)), "float32")
    for row, present in zip(table, sets):
        if present is None:
            row[:] = np.nan
        else:
            row[[columns[name] for name in present]] = 1
    return Labels("labels", tuple(names), table)


def _numeric(where, values, kind):
    """Returns the columns as `(N, K)` float32, with NaN for empty cells."""
    table = np.full((len(next(iter(values.values()))), len(values)), np.nan)
    columns, (rule, parse) = {name: k for k, name in enumerate(values)}, CELLS[kind]
    for name, row, cell in _known(values):
        number = None if isinstance(cell, list) else parse(cell.casefold())
        if number is None:
            raise ValueError(
                f"The column {name!r} of {where!r} must hold {rule} in each row. Received: "
                f"{cell!r} in row {row + 1}. List the texts for unknown values in data.unknown"
            )
        table[row, columns[name]] = number
    rounded = table.astype("float32")
    for name, exact, held in zip(columns, table.T, rounded.T):
        exact, held = exact[~np.isnan(exact)], held[~np.isnan(exact)]
        differ = len({*exact.tolist()}) > 1
        if differ and np.abs(held - exact).max() > COARSE * exact.std():
            raise ValueError(
                "Numbers must differ by more than float32's rounding. Received: "
                f"{exact[0]:.17g} with a standard deviation of {exact.std():.3g} in the column "
                f"{name!r} of {where!r}. Subtract their mean first"
            )
    return rounded
