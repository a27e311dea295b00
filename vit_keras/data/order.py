"""Random numbers and the order of images: pure functions of the seed and a number in the run."""

import threading
from collections.abc import Callable, Sequence

import numpy as np

# What a stream is for: the second number of its key, so that no two streams are the same.
EXAMPLE, PAIR, ORDER, STRATUM, MEMBER, HELD_OUT = range(6)


def generator(*key: int) -> np.random.Generator:
    """Returns a generator whose stream follows from a key alone.

    Args:
        *key: Any number of integers from -2**63 to 2**63 - 1. Different keys have independent
            streams, also if they differ in their length or in zeros at the end.

    Example:
        >>> generator(7, EXAMPLE, 3).integers(100) == generator(7, EXAMPLE, 3).integers(100)
        True
    """
    words = np.array([len(key), *(int(number) % 2**64 for number in key)], "<u8").view("<u4")
    return np.random.default_rng(words)


def shuffled(size: int, seed: int) -> Callable[[int], int]:
    """Returns a map from a number of the endless sequence of epochs to an index of a split.

    Args:
        size: The number of images of the split.
        seed: The run's seed.
    """
    orders = _Orders()
    return lambda number: int(orders(size, seed, ORDER, number // size)[number % size])


def balanced(strata: Sequence[int], seed: int) -> Callable[[int], int]:
    """Returns a map as `shuffled` does, by which all strata are drawn equally often.

    Of K consecutive numbers, each stratum gets one, in an order of its own. Each stratum goes
    through its images in epochs of its own.

    Args:
        strata: A value for each image, such as its class.
        seed: The run's seed.
    """
    _, numbers, sizes = np.unique(np.asarray(strata), return_inverse=True, return_counts=True)
    images = np.argsort(numbers, kind="stable").astype(np.min_scalar_type(len(numbers)))
    members = np.split(images, np.cumsum(sizes)[:-1])
    orders = _Orders()

    def index(number):
        turn, place = divmod(number, len(members))
        stratum = orders(len(members), seed, STRATUM, turn)[place]
        epoch, place = divmod(turn, len(members[stratum]))
        order = orders(len(members[stratum]), seed, MEMBER, stratum, epoch)
        return int(members[stratum][order[place]])

    return index


class _Orders:
    """The orders of epochs, which are the last numbers of keys; keeps two a sequence."""

    def __init__(self):
        self._lock, self._kept = threading.Lock(), {}

    def __call__(self, size, *key):
        slot = (*key[:-1], key[-1] % 2)
        with self._lock:
            epoch, order = self._kept.get(slot, (None, None))
            if epoch != key[-1]:
                order = np.arange(size, dtype=np.min_scalar_type(size))
                generator(*key).shuffle(order)
                self._kept[slot] = key[-1], order
        return order
