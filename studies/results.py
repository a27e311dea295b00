"""The result of a study: a table, a picture and sentences about them."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from vit_keras.evaluation import mean_and_std

PUBLISHED = pathlib.Path(__file__).with_name("published.yaml")


class Column(NamedTuple):
    """A column of a table: its name, with the unit, and the format of its numbers."""

    name: str
    format_spec: str = ""


class Mean(NamedTuple):
    """The mean over runs and its standard deviation (n − 1), which is None for a single run.

    Example:
        >>> f"{Mean(97.5, 0.25):.1f}", f"{Mean(97.5):.1f}"
        ('97.5 ± 0.2', '97.5')
    """

    mean: float
    std: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Mean":
        """The mean and the standard deviation of `values`.

        Example:
            f"{Mean.of([1.0, 2.0, 6.0]):.1f}"  # "3.0 ± 2.6"
        """
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
    """The entry of published.yaml for a table or figure: what the paper prints.

    Example:
        published("table8")["finding"]
    """
    return _all_published()[name]


def title_of(name: str) -> str:
    """The title of a table or figure: "Table 1. Variants of the Vision Transformer".

    Example:
        >>> title_of("table8")
        'Table 8. Position embeddings'
    """
    kind, number = name.rstrip("0123456789"), name.lstrip("abcdefghijklmnopqrstuvwxyz")
    return f"{kind.capitalize()} {number}. {published(name)['title']}"


def rows_of(name: str) -> list[dict[str, Any]]:
    """The published rows of a table or figure, each as `{column: value}`.

    Example:
        >>> rows_of("table8")[0]
        {'embedding': 'none', 'at': 'stem', 'accuracy': 61.382}
    """
    entry = published(name)
    return [dict(zip(entry["columns"], row, strict=True)) for row in entry["rows"]]
