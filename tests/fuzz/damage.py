"""Damage to the bytes of a file, as plain values that a seed or Hypothesis draws."""

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Damage:
    """One change of a file.

    Attributes:
        kind: A key of `KINDS`.
        place: Where, as a share of the file in [0, 1).
        other: A second place.
        length: A number of bytes, of bits to flip, or a bit.
        content: The seed of bytes that are inserted.
    """

    kind: str
    place: float
    other: float = 0.0
    length: int = 1
    content: int = 0

    def __call__(self, data: bytes) -> bytes:
        return KINDS[self.kind](self, data)

    def at(self, data: bytes, share: float) -> int:
        return min(int(share * len(data)), max(len(data) - 1, 0))

    def noise(self) -> bytes:
        return np.random.default_rng(self.content).bytes(self.length)


def _flip(damage: Damage, data: bytes) -> bytes:
    changed = bytearray(data)
    changed[damage.at(data, damage.place)] ^= 1 << damage.length % 8
    return bytes(changed)


def _flips(damage: Damage, data: bytes) -> bytes:
    changed, rng = bytearray(data), np.random.default_rng(damage.content)
    for place in rng.integers(len(data), size=min(damage.length, 64)):
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _overwrite(damage: Damage, data: bytes) -> bytes:
    start, noise = damage.at(data, damage.place), damage.noise()
    return (data[:start] + noise + data[start + len(noise) :])[: len(data)]


def _zeros(damage: Damage, data: bytes) -> bytes:
    start = damage.at(data, damage.place)
    stop = min(start + damage.length, len(data))
    return data[:start] + bytes(stop - start) + data[stop:]


def _insert(damage: Damage, data: bytes) -> bytes:
    start = damage.at(data, damage.place)
    return data[:start] + damage.noise() + data[start:]


def _remove(damage: Damage, data: bytes) -> bytes:
    start = damage.at(data, damage.place)
    return data[:start] + data[start + damage.length :]


def _swap(damage: Damage, data: bytes) -> bytes:
    """Swaps two blocks of the same length."""
    first, second = sorted(damage.at(data, share) for share in (damage.place, damage.other))
    length = min(damage.length, second - first, len(data) - second)
    a, b = data[first : first + length], data[second : second + length]
    between = data[first + length : second]
    return data[:first] + b + between + a + data[second + length :]


def _repeat(damage: Damage, data: bytes) -> bytes:
    start = damage.at(data, damage.place)
    block = data[start : start + damage.length]
    return data[:start] + block + data[start:]


KINDS: dict[str, Any] = {
    "flip": _flip,
    "flips": _flips,
    "cut": lambda damage, data: data[: damage.at(data, damage.place)],
    "overwrite": _overwrite,
    "zeros": _zeros,
    "insert": _insert,
    "remove": _remove,
    "swap": _swap,
    "repeat": _repeat,
}
# Half of the damage is one bit, which is the hardest to see.
SHARES = {"flip": 0.5, "cut": 0.15}


def drawn(rng: np.random.Generator) -> Damage:
    """A random change."""
    rest = (1 - sum(SHARES.values())) / (len(KINDS) - len(SHARES))
    kind = str(rng.choice(list(KINDS), p=[SHARES.get(kind, rest) for kind in KINDS]))
    length = int(2 ** rng.uniform(0, 9))
    return Damage(kind, *rng.random(2).tolist(), length, int(rng.integers(2**31)))
