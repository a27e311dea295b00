"""RandAugment, AutoAugment, TrivialAugment, and ColorJitter.

A policy turns numbers that were drawn for a picture into the operations on it.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from vit_keras.data.operations import OPERATIONS
from vit_keras.data.strengths import AUTOAUGMENT, IMAGENET, RANDAUGMENT, STRONGEST, TRIVIALAUGMENT

COLUMNS = 4  # numbers that are drawn for a row
MAX_LEVEL = 10  # the magnitude of RandAugment for which the published amounts are stated
BINS = 31  # strengths of TrivialAugment
JITTERED = ("brightness", "contrast", "color")
ORDERS = tuple(itertools.permutations(range(len(JITTERED))))


@dataclasses.dataclass(frozen=True)
class Policy:
    """How drawn numbers become operations.

    Attributes:
        rows: The rows of numbers for one picture.
        steps: From these numbers, `(rows, COLUMNS)` from 0 to 1, and the picture's height and
            width to names and amounts of operations.
    """

    rows: int
    steps: Callable[[np.ndarray, tuple[int, int]], Iterator[tuple]]


def randaugment(layers: int, magnitude: float) -> Policy:
    """RandAugment (arXiv 1909.13719): `layers` operations of one strength, 0 to 30."""
    names = tuple(RANDAUGMENT)

    def steps(drawn, size):
        for choice, sign, *place in drawn:
            name = names[int(choice * len(names))]
            amounts = RANDAUGMENT[name](magnitude / MAX_LEVEL, _sign(sign), size)
            yield name, *amounts, *(place if name == "cutout" else ())

    return Policy(layers, steps)


def autoaugment() -> Policy:
    """AutoAugment's policy for ImageNet (arXiv 1805.09501): one of 25 pairs of operations."""

    def steps(drawn, size):
        pair = IMAGENET[int(drawn[0, 0] * len(IMAGENET))]
        for (name, probability, level), (_, sign, chance, _) in zip(pair, drawn):
            if chance < probability:
                yield name, *AUTOAUGMENT[name](level / STRONGEST, _sign(sign), size)

    return Policy(2, steps)


def trivialaugment() -> Policy:
    """TrivialAugment in its wide space (arXiv 2103.10158): one operation of any strength."""
    names = tuple(TRIVIALAUGMENT)

    def steps(drawn, size):
        choice, sign, level, _ = drawn[0]
        name = names[int(choice * len(names))]
        yield name, *TRIVIALAUGMENT[name](int(level * BINS) / (BINS - 1), _sign(sign), size)

    return Policy(1, steps)


def color_jitter(strength: float) -> Policy:
    """Changes brightness, contrast, and saturation, in a drawn order, by drawn factors.

    The factors lie from 1 - strength, at least 0, to 1 + strength.
    """
    low, high = max(0.0, 1 - strength), 1 + strength

    def steps(drawn, size):
        order, *factors = drawn[0]
        for place in ORDERS[int(order * len(ORDERS))]:
            yield JITTERED[place], low + (high - low) * float(factors[place])

    return Policy(1, steps)


def chosen(config) -> list[Policy]:
    """The policies that an `AugmentConfig` asks for, in their order."""
    made = []
    if config.randaugment_layers and config.library == "pillow":
        made.append(randaugment(config.randaugment_layers, config.randaugment_magnitude))
    if config.policy in POLICIES:
        made.append(POLICIES[config.policy]())
    if config.color_jitter:
        made.append(color_jitter(config.color_jitter))
    return made


def apply(policies: Sequence[Policy], picture, rng: np.random.Generator):
    """Changes a picture in RGB by policies in their order, as the numbers that `rng` draws say."""
    for policy in policies:
        drawn = rng.random((policy.rows, COLUMNS))
        for name, *amounts in policy.steps(drawn, picture.size[::-1]):
            picture = OPERATIONS[name](picture, *amounts)
    return picture


def _sign(number):
    return 1 if number < 0.5 else -1


POLICIES = {"autoaugment": autoaugment, "trivialaugment": trivialaugment}
