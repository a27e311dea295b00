"""How projects order the numbers of queries and keys in a head that rotary positions pair.

This package rotates i and i + d/2 as a pair, by rows for i < d/4 and by columns for the others. A
layout says at which place of a file each of these numbers stands.
"""

from collections.abc import Callable

import numpy as np


def halves(size: int) -> np.ndarray:
    """Pairs (i, i + d/2), rows first, as in DINOv3: this package's own order."""
    return np.arange(size)


def interleaved(size: int) -> np.ndarray:
    """Pairs (2i, 2i + 1), rows first, as in EVA-02."""
    return np.concatenate([np.arange(0, size, 2), np.arange(1, size, 2)])


def interleaved_columns_first(size: int) -> np.ndarray:
    """Pairs (2i, 2i + 1), columns first, as in PE."""
    pairs = np.roll(np.arange(size // 2), -(size // 4))
    return np.concatenate([2 * pairs, 2 * pairs + 1])


LAYOUTS: dict[str, Callable[[int], np.ndarray]] = {
    "halves": halves,
    "interleaved": interleaved,
    "interleaved_columns_first": interleaved_columns_first,
}
