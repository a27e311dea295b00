"""What a study finds: a table, a picture and what to say of them."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from vit_keras.evaluation import mean_and_std

PUBLISHED = pathlib.Path(__file__).with_name("published.yaml")


class Column(NamedTuple):
    """A column of a table: its name, with a unit where it has one, and Python's format of it."""

    name: str
    form: str = ""


class Mean(NamedTuple):
    """A mean over runs and its standard deviation (n − 1), None of a single run."""

    mean: float
    std: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Mean":
        """The mean and the deviation of `values`."""
        mean, std = mean_and_std(values)
        return cls(mean, std if len(values) > 1 else None)

    def __format__(self, form: str) -> str:
        return format(self.mean, form) + ("" if self.std is None else f" ± {self.std:{form}}")


@dataclasses.dataclass(frozen=True)
class Result:
    """What a study finds.

    Attributes:
        name: of the study, such as table1.
        columns: of the table; names begin with "ours" or "paper" where both have a figure.
        rows: one value a column: text, a number, a `Mean`, or None where there is none.
        draw: writes the picture to a path.
        finding: what our rows show, in a sentence that is computed from them.
        smaller: what differs from the paper's experiment; "" for nothing.
    """

    name: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    draw: Callable[[pathlib.Path], None]
    finding: str
    smaller: str = ""

    def __post_init__(self):
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"A row must have a value for each of {len(self.columns)} columns. "
                    f"Received: {list(row)}"
                )

    @property
    def title(self) -> str:
        """Such as "Table 1. Variants of the Vision Transformer"."""
        return title_of(self.name)

    @property
    def published(self) -> Mapping[str, Any]:
        """What the paper prints."""
        return published(self.name)


@functools.cache
def _all_published():
    return yaml.safe_load(PUBLISHED.read_text())


def published(name: str) -> Mapping[str, Any]:
    """What the paper prints of a table or figure, as published.yaml has it."""
    return _all_published()[name]


def title_of(name: str) -> str:
    """ "Table 1. Variants of the Vision Transformer" for "table1"."""
    kind, number = name.rstrip("0123456789"), name.lstrip("abcdefghijklmnopqrstuvwxyz")
    return f"{kind.capitalize()} {number}. {published(name)['title']}"


def rows_of(name: str) -> list[dict[str, Any]]:
    """The published rows, each `{column: value}`."""
    found = published(name)
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
