"""Finds pictures that are the same, or nearly so, by their perceptual hashes."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from vit_keras.data.survey import Picture

BITS = 64  # of a phash
SMALLEST = 32  # pixels, the side from which a phash is computed: smaller pictures only look alike
COLOR_DISTANCE = 4  # bits of a colorhash that a copy of other size or quality may change


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two pictures that look alike.

    Attributes:
        first: The earlier one.
        second: The later one.
        distance: The number of bits in which their `imagehash.phash` differs, 0 to 64.
    """

    first: Picture
    second: Picture
    distance: int

    @property
    def is_exact(self) -> bool:
        """Whether both have the same bytes."""
        return self.first.digest == self.second.digest


def find_pairs(pictures: Sequence[Picture], distance: int = 4) -> list[Pair]:
    """Finds near-duplicates; among pictures of fewer than 32 pixels a side, the same files alone.

    Each picture is paired with the most similar earlier one: of the same split and class, of
    another split, of another class, and of both others. A picture that occurs n times thus gives
    n - 1 pairs, not n²/2.

    Args:
        pictures: From `survey_pictures`, the training images first.
        distance: The largest number of bits of the hash, 0 to 16, in which a pair differs.

    Returns:
        The pairs, the most similar first.

    Raises:
        ValueError: If `distance` is out of range.
    """
    if not 0 <= distance <= 16:
        raise ValueError(f"`distance` must be 0 to 16 of 64 bits. Received: distance={distance}")
    readable = [picture for picture in pictures if picture.error is None]
    rows = np.array([_hashes(picture) for picture in readable], "uint64").reshape(-1, 2)
    unique, inverse = np.unique(rows, axis=0, return_inverse=True)
    alike = _alike(unique, distance)
    earliest: dict[int, dict[tuple, int]] = {}  # by row of `unique`, and by split and class
    pairs = []
    for place, (picture, row) in enumerate(zip(readable, inverse.ravel().tolist())):
        best: dict[tuple, tuple[int, int]] = {}
        for bits, other in alike.get(row, [(0, row)]):
            for group, first in earliest.get(other, {}).items():
                kind = group[0] == picture.split, group[1] == picture.class_name
                best[kind] = min(best.get(kind, (BITS, 0)), (bits, first))
        pairs += [Pair(readable[first], picture, bits) for bits, first in best.values()]
        earliest.setdefault(row, {}).setdefault((picture.split, picture.class_name), place)
    return sorted(pairs, key=lambda pair: pair.distance)


def _hashes(picture):
    if min(picture.width, picture.height) < SMALLEST:
        return int(picture.digest[:16], 16), 0
    return picture.phash, picture.colorhash


def _alike(hashes, distance):
    """Returns the rows that are near to each row, itself included, with their distances."""
    alike: dict[int, list[tuple[int, int]]] = {}
    for first, second, bits in near_hashes(hashes[:, 0], distance):
        if np.bitwise_count(hashes[first, 1] ^ hashes[second, 1]) <= COLOR_DISTANCE:
            alike.setdefault(first, [(0, first)]).append((bits, second))
            alike.setdefault(second, [(0, second)]).append((bits, first))
    return alike


def near_hashes(hashes: np.ndarray, distance: int) -> list[tuple[int, int, int]]:
    """Finds all pairs of 64-bit hashes `(N,)` that differ in at most `distance` bits.

    If two hashes differ in d bits, at least one of d + 1 bands of bits is the same in both. So
    hashes are sorted by each band, and compared with those of the same band alone.

    Returns:
        The pairs as (first index, second index, bits), each once.
    """
    hashes, bands = np.asarray(hashes, "uint64"), distance + 1
    edges = np.linspace(0, BITS, bands + 1).astype(int)
    bits_of: dict[tuple[int, int], int] = {}
    for low, high in itertools.pairwise(edges):
        keys = (hashes >> np.uint64(low)) & np.uint64(2 ** int(high - low) - 1)
        order = np.argsort(keys, kind="stable")
        keys, step = keys[order], 1
        places = np.arange(len(keys))
        while len(places := places[places + step < len(keys)]):
            places = places[keys[places] == keys[places + step]]
            one, two = order[places], order[places + step]
            bits = np.bitwise_count(hashes[one] ^ hashes[two])
            for i in np.flatnonzero(bits <= distance):
                bits_of[int(min(one[i], two[i])), int(max(one[i], two[i]))] = int(bits[i])
            step += 1
    return [(first, second, bits) for (first, second), bits in bits_of.items()]
