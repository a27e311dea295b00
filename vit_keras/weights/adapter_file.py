"""What a file of low-rank adapters says: its settings, its base and the shapes of its tensors."""

import json
import os
from typing import Any, NamedTuple

import numpy as np

from vit_keras.weights.containers.safetensors import NOTE_KEY, SafetensorsTensors

SUFFIX = ".safetensors"
NOTE = "adapters"  # the entry of this package's metadata
SETTINGS = ("rank", "alpha", "layers")
KEYS = (*SETTINGS, "train", "base", "class_names", "task", "architecture")


class AdapterFile(NamedTuple):
    """An open file of adapters.

    Attributes:
        path: The path of the file.
        note: Its metadata, as `describe_adapters` explains them.
        tensors: The reader of its tensors, whose names are the paths of the model's variables.
    """

    path: str
    note: dict[str, Any]
    tensors: SafetensorsTensors


def describe_adapters(path: str | os.PathLike) -> dict[str, Any] | None:
    """Describes a file of adapters.

    Args:
        path: Any path.

    Returns:
        A dictionary of values that JSON can hold: `rank`, `alpha`, `layers` with adapters,
        `train`ed whole layers, the `base` with its `name` and `sha256`, `class_names`, the
        `task`, the `architecture`, the number of `parameters` and of `bytes`. None for other files.

    Example:
        >>> describe_adapters("runs/pets/adapters.safetensors")["rank"]
        8
    """
    path = os.fspath(path)
    if not path.endswith(SUFFIX) or not os.path.isfile(path):
        return None
    try:
        file = open_adapters(path)
    except ValueError:
        return None
    sizes = [int(np.prod(shape)) for shape in file.tensors.shapes.values()]
    return {**file.note, "parameters": sum(sizes), "bytes": os.path.getsize(path)}


def open_adapters(path) -> AdapterFile:
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no file of adapters at {path!r}.")
    tensors = SafetensorsTensors(path)
    try:
        note = json.loads(tensors.metadata.get(NOTE_KEY, "{}"))[NOTE]
        missing = [key for key in KEYS if key not in note]
    except (ValueError, KeyError, TypeError):
        missing = [NOTE]
    if missing:
        raise ValueError(
            f"{path!r} must be a file of adapters, as `save_adapters` and runs with `lora.rank` "
            f"write it. Received: a file whose metadata lacks {', '.join(missing)}"
        )
    return AdapterFile(path, note, tensors)
