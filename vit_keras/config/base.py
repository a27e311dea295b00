"""The base class of a configuration's sections, and types for numbers in a range."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, get_args, get_origin

from vit_keras.support.checks import Rule, check_rules


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that a field, or each of its items, may have; `str()` gives the rule in words."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def holds(self, value: Any) -> bool:
        numbers = value if isinstance(value, tuple) else (value,)
        return all(self.least <= n <= self.most and self.above < n < self.below for n in numbers)

    def __str__(self):
        if math.isfinite(self.least + self.most):
            return f"from {self.least:g} to {self.most:g}"
        words = {"at least": self.least, "above": self.above}
        words |= {"at most": self.most, "below": self.below}
        return " and ".join(f"{word} {n:g}" for word, n in words.items() if math.isfinite(n))


Count = Annotated[int, Range(0)]
Size = Annotated[int, Range(1)]
Sides = Annotated[int | tuple[int, int], Range(1)]
NotNegative = Annotated[float, Range(0)]
Positive = Annotated[float, Range(above=0)]
Fraction = Annotated[float, Range(0, 1)]
Rate = Annotated[float, Range(0, below=1)]
Share = Annotated[float, Range(above=0, most=1)]
Percent = Annotated[float, Range(0, below=100)]


class Section:
    """Base class of dataclasses that check their fields against ranges and `RULES`.

    A subclass is declared with its `name` in `Config`, which precedes its fields in messages.

    Attributes:
        RULES: Further rules, as in `check_rules`.
    """

    SECTION: ClassVar[str | None] = None
    RULES: ClassVar[tuple[Rule, ...]] = ()

    def __init_subclass__(cls, name: str | None = None):
        cls.SECTION = name

    def __post_init__(self):
        check_rules(self, self.SECTION, [*_ranges(type(self)), *self.RULES])


def _ranges(section) -> Iterator[Rule]:
    for field in dataclasses.fields(section):
        for kind in (field.type, *get_args(field.type)):
            if get_origin(kind) is Annotated:
                (numbers,) = kind.__metadata__
                null = ", or null" if type(None) in get_args(field.type) else ""
                yield field.name, numbers.holds, f"{numbers}{null}"
