"""A model's variables as the named tensors of another project, and back."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from vit_keras.models import lora_layers
from vit_keras.weights.formats.base import Link


def read_variables(model: keras.Model, links: Iterable[Link]) -> dict[str, np.ndarray]:
    """Copies all variables of a model.

    Args:
        model: The model.
        links: The links of all its variables, see `vit_keras.weights.formats`.

    Returns:
        `{name of a tensor: array}`, contiguous, of float64 where the model is, else of float32.
    """
    variables = {variable.path: variable for variable in model.weights}
    tensors: dict[str, np.ndarray] = {}
    for link in links:
        ours = (keras.ops.convert_to_numpy(variables.pop(path)) for path in link.ours)
        arrays = link.write(*map(exact, ours))
        tensors |= {name: np.array(x, order="C") for name, x in zip(link.theirs, arrays)}
    if variables:
        raise ValueError(
            f"A native object has no place for these variables of model {model.name!r}: "
            f"{', '.join(variables)}"
        )
    return tensors


def exact(x) -> np.ndarray:
    """Returns an array or tensor as an array of float64, or else of float32."""
    array = np.asarray(x)
    return np.asarray(array, "float64" if array.dtype == np.float64 else "float32")


def assign_variables(
    model: keras.Model, links: Iterable[Link], tensors: Mapping[str, np.ndarray]
) -> None:
    """Assigns tensors to all variables of a model, or raises and leaves it unchanged.

    Args:
        model: The model.
        links: The links of all its variables.
        tensors: `{name: array}`, or tensors that NumPy can read.

    Raises:
        ValueError: Tensors are missing, unknown or of another shape; the message lists all. Or the
            model has low-rank adapters.
    """
    if lora_layers(model):
        raise ValueError(
            "Weights cannot go back into low-rank adapters, which native objects hold merged. "
            f"Received: model {model.name!r} with adapters. Give `merge_lora(model)`"
        )
    tensors = {name: exact(x) for name, x in tensors.items()}
    links, variables = list(links), {variable.path: variable for variable in model.weights}
    expected: dict[str, tuple[int, ...]] = {}
    for link in links:
        blank = [np.broadcast_to(np.float32(0), variables[path].shape) for path in link.ours]
        expected |= {name: x.shape for name, x in zip(link.theirs, link.write(*blank))}
    faults = [f"missing: {name}, {expected[name]}" for name in expected if name not in tensors]
    faults += [f"unknown: {name}" for name in tensors if name not in expected]
    faults += [
        f"{name} is {x.shape}, and {expected[name]} in the model"
        for name, x in tensors.items()
        if name in expected and x.shape != expected[name]
    ]
    if faults:
        raise ValueError(
            f"The tensors must be those of model {model.name!r}. Received:\n  "
            + "\n  ".join(faults)
        )
    arrays: dict[str, np.ndarray] = {}
    for link in links:
        arrays |= dict(zip(link.ours, link.read(*(tensors[name] for name in link.theirs))))
    for path, array in arrays.items():
        variables[path].assign(np.ascontiguousarray(array))


def nested(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a/b": x}` as `{"a": {"b": x}}`."""
    tree: dict[str, Any] = {}
    for name, x in tensors.items():
        *folders, leaf = name.split("/")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = x
    return tree


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The reverse of `nested`."""
    tensors: dict[str, Any] = {}
    for name, x in tree.items():
        inner = flat(x, f"{prefix}{name}/") if isinstance(x, Mapping) else {f"{prefix}{name}": x}
        tensors |= inner
    return tensors
