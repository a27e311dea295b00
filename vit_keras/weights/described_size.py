"""How many weights the configuration of a `.keras` file describes."""

import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from vit_keras.models.without_values import build_without_values
from vit_keras.weights.json_text import parse_json

SLACK = 10**6  # weights that a small file may describe without having them


def check_described_size(config: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Checks that a configuration describes no more weights than its file can hold.

    Otherwise a small file could make Keras take any amount of memory. The model is built without
    values for this. Where it cannot be built, loading says why.

    Args:
        config: The text of `config.json`.
        shapes: The shapes of the file's tensors. Two weights of four bits may share one number.

    Raises:
        ValueError: The model has far more weights, or units of a ResNet, than the file.
    """
    described = {**parse_json(config, "config.json"), "compile_config": None}
    if (units := max(_units(described), default=0)) > len(shapes):
        raise ValueError(
            f"its configuration has num_units {units}, and it holds {len(shapes)} tensors"
        )
    held = sum(map(math.prod, shapes.values()))
    if (count := _count(described)) > 2 * held + SLACK:
        raise ValueError(f"its configuration describes {count} weights, and it holds {held}")


def _count(described):
    try:
        with warnings.catch_warnings(action="ignore"):  # loading repeats them
            model = build_without_values(lambda: keras.saving.deserialize_keras_object(described))
    except Exception:
        return 0
    return sum(math.prod(weight.shape) for weight in model.weights)


def _units(part: Any) -> Iterator[int]:
    """The numbers of units in the layers of a configuration that make several."""
    if isinstance(part, dict):
        if isinstance(part.get("num_units"), int):
            yield part["num_units"]
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _units(inner)
