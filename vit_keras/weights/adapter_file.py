"""What a file of low-rank adapters says: its settings, its base and the shapes of its tensors."""

import dataclasses
import os
from typing import Any, NamedTuple

import numpy as np

from vit_keras.annotated import check_annotated, short
from vit_keras.models.options import ViTOptions
from vit_keras.preprocessing import with_tuples
from vit_keras.tasks import Task
from vit_keras.weights.architectures import class_for
from vit_keras.weights.containers.checks import DamagedFile
from vit_keras.weights.containers.safetensors import NOTE_KEY, SafetensorsTensors
from vit_keras.weights.json_text import parse_json

SUFFIX = ".safetensors"
NOTE = "adapters"  # the entry of this package's metadata
SETTINGS = ("rank", "alpha", "layers")


@dataclasses.dataclass(frozen=True)
class Base:
    """The weights that adapters belong to.

    Attributes:
        name: What they are called, or None.
        sha256: The SHA-256 of the layers that the adapters are in.
    """

    name: str | None
    sha256: str


@dataclasses.dataclass(frozen=True)
class AdapterNote:
    """The fields of the metadata, as JSON holds them.

    Attributes:
        rank: The rank of all adapters.
        alpha: Their products are multiplied by `alpha / rank`.
        layers: The names of the layers with adapters.
        train: The layers that are in the file as a whole.
        base: The weights that the adapters belong to.
        class_names: The names of the classes, or None.
        task: What the outputs mean.
        architecture: The arguments of the model's constructor.
    """

    rank: int
    alpha: float
    layers: tuple[str, ...]
    train: tuple[str, ...]
    base: Base
    class_names: tuple[str, ...] | None
    task: Task
    architecture: dict


KEYS = tuple(field.name for field in dataclasses.fields(AdapterNote))


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
    note = parse_json(tensors.metadata.get(NOTE_KEY, "{}"), f"The note in {path!r}")
    note = note.get(NOTE) if isinstance(note, dict) else None
    note = note if isinstance(note, dict) else {}
    missing = [key for key in KEYS if key not in note] if note else [NOTE]
    if missing:
        raise ValueError(
            f"{path!r} must be a file of adapters, as `save_adapters` and runs with `lora.rank` "
            f"write it. Received: a file whose metadata lacks {', '.join(missing)}"
        )
    try:
        _check(note)
    except (ValueError, TypeError) as error:
        raise DamagedFile(f"The note in {path!r} is damaged: {error}") from error
    return AdapterFile(path, note, tensors)


def _check(note):
    """Raises ValueError if the note has fields that `save_adapters` does not write."""
    check_annotated(note, AdapterNote)
    for annotated in (class_for(note["architecture"]).constructor, ViTOptions):
        check_annotated(note["architecture"], annotated)
    if note["rank"] < 1 or note["alpha"] <= 0 or not note["layers"]:
        raise ValueError(
            "`rank` and `alpha` must be above 0, and `layers` must not be empty. Received: "
            + ", ".join(f"{key}={short(note[key])}" for key in SETTINGS)
        )
    Base(**note["base"])
    Task(**with_tuples(note["task"]))
