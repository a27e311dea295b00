"""Names with `{a,b}` and `{000..127}`."""

import itertools
import math
import re

BRACES = re.compile(r"\{([^{}]*)\}")
NUMBERS = re.compile(r"(\d+)\.\.(\d+)")
MOST_SHARDS = 10**6


def expand_braces(pattern: str) -> list[str]:
    """Returns the names that `{a,b}` and `{000..127}` stand for.

    Raises:
        ValueError: If there are more than a million.
    """
    texts = BRACES.split(pattern)
    choices = [[text] if i % 2 == 0 else _choices(pattern, text) for i, text in enumerate(texts)]
    if math.prod(map(len, choices)) > MOST_SHARDS:
        raise ValueError(f"A pattern may name {MOST_SHARDS} shards at most. Received: {pattern!r}")
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _choices(pattern, text):
    bounds = NUMBERS.fullmatch(text)
    if not bounds:
        return text.split(",")
    first, last = map(int, bounds.groups())
    if not first <= last < first + MOST_SHARDS:
        raise ValueError(
            f"A range in a pattern must ascend, over {MOST_SHARDS} numbers at most. "
            f"Received: {{{text}}} in {pattern!r}"
        )
    return [f"{number:0{len(bounds[1])}}" for number in range(first, last + 1)]
