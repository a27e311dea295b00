"""Low-rank adapters in separate files: a few MB in addition to the weights that they adapt."""

import dataclasses
import json
import math
import os
from typing import Any, TypedDict

import keras
import numpy as np

from vit_keras.layers.base import LORA, lora_shapes
from vit_keras.models.architectures import check_arguments
from vit_keras.models.description import task_of
from vit_keras.models.image_model import ImageModel
from vit_keras.models.lora import adaptable_layers, add_lora, lora_layers, lora_variables
from vit_keras.support import checks as forms
from vit_keras.support.checks import FILLED, DamagedFile, Positive, Size, differences
from vit_keras.support.files import replacing
from vit_keras.support.preprocessing import with_tuples
from vit_keras.support.tasks import Task
from vit_keras.weights.containers import checks
from vit_keras.weights.strict_copy import sizes_of

SUFFIX = ".safetensors"
NOTE = "adapters"  # the entry of this package's metadata
SETTINGS = ("rank", "alpha", "layers")


class Base(TypedDict):
    """The weights that adapters belong to.

    Attributes:
        name: The name of the weights, or None.
        sha256: The SHA-256 of the layers with adapters.
    """

    name: str | None
    sha256: str


class AdapterNote(TypedDict):
    """The fields of the metadata, as in JSON.

    Attributes:
        rank: The rank of all adapters.
        alpha: The adapters' products are multiplied by `alpha / rank`.
        layers: The names of the layers with adapters.
        train: The layers that are stored in full.
        base: The weights that the adapters belong to.
        class_names: The names of the classes, or None.
        task: What the outputs mean.
        architecture: The arguments of the model's constructor.
    """

    rank: Size
    alpha: Positive
    layers: list[str]
    train: tuple[str, ...]
    base: Base
    class_names: tuple[str, ...] | None
    task: Task
    architecture: dict


def describe_adapters(path: str | os.PathLike) -> dict[str, Any] | None:
    """Describes a file of adapters.

    Args:
        path: Any path.

    Returns:
        A dictionary of values that JSON can hold: `rank`, `alpha`, `layers` (with adapters),
        `train` (layers stored in full), `base` with its `name` and `sha256`, `class_names`, `task`,
        `architecture`, and the numbers of `parameters` and `bytes`. None for other files.

    Example:
        >>> describe_adapters("runs/pets/adapters.safetensors")["rank"]
        8
    """
    path = os.fspath(path)
    if not path.endswith(SUFFIX) or not os.path.isfile(path):
        return None
    try:
        note, tensors = open_adapters(path)
    except ValueError:
        return None
    parameters = sum(map(math.prod, tensors.shapes.values()))
    return {**note, "parameters": parameters, "bytes": os.path.getsize(path)}


def open_adapters(path: str | os.PathLike) -> tuple[dict[str, Any], checks.SafetensorsTensors]:
    """Returns the metadata of a file of adapters, and its tensors by the variables' paths."""
    path = os.fspath(path)
    tensors = checks.SafetensorsTensors(path)
    note: Any = forms.parse_json(tensors.note or "{}", f"The note in {path!r}").get(NOTE)
    if reason := forms.fault(note, AdapterNote, FILLED):
        raise DamagedFile(
            f"{path!r} must be a file of adapters, written by `save_adapters` or by a run with "
            f"`lora.rank`. Its note about them is missing or damaged: {reason}"
        )
    with checks.named_errors(path):
        check_arguments(note["architecture"])
        Task(**with_tuples(note["task"]))
    return note, tensors


# An adapted model may have this many times the weights of its base, since larger images need more
# positions.
LARGEST_GROWTH = 4


def save_adapters(model: keras.Model, path: str | os.PathLike, base: str | None = None) -> None:
    """Writes the adapters of a model, and the layers trained alongside them, such as the head.

    Args:
        model: A model with adapters.
        path: A file that ends in `.safetensors`.
        base: The name of the weights that the adapters belong to. The file also holds a checksum
            of these weights.

    Raises:
        ValueError: The model has no adapters or several ranks, or the path has the wrong suffix.
        ImportError: safetensors is not installed.

    Example:
        ```python
        vit_keras.models.add_lora(model, rank=8)
        model.fit(images, labels)
        vit_keras.weights.save_adapters(model, "pets.safetensors", base="ViT-S_16.npz")
        ```
    """
    path = os.fspath(path)
    if not path.endswith(SUFFIX):
        raise ValueError(f"Adapters are written to {SUFFIX} files. Received: {path!r}")
    settings, variables = _settings(model), {v.path: v for v in lora_variables(model)}
    trained = {x.name: {v.path for v in x.trainable_variables} for x in model.layers}
    whole = [name for name, paths in trained.items() if paths - variables.keys()]
    variables |= {v.path: v for name in whole for v in model.get_layer(name).weights}
    class_names = getattr(model, "class_names", None)
    note = {
        **settings,
        "train": whole,
        "base": {"name": base, "sha256": _checksum(model, set(variables))},
        "class_names": None if class_names is None else list(class_names),
        "task": dataclasses.asdict(task_of(model)),
        "architecture": sizes_of(model),
    }
    arrays = ((name, np.array(_array(variable))) for name, variable in variables.items())
    with replacing(path) as temporary:
        checks.write_safetensors(temporary, arrays, json.dumps({NOTE: note}))


def load_adapters(model: keras.Model, path: str | os.PathLike) -> keras.Model:
    """Adds all adapters in a file, or none, to the model that they belong to.

    Args:
        model: The base, with as many classes as the file. Existing adapters of the same rank, alpha
            and layers are replaced.
        path: A file written by `save_adapters` or a run.

    Returns:
        `model`, changed in place. Its adapters can be trained further; `models.merge_lora` adds
        them to the kernels.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file has no adapters, belongs to another base, or does not fit. The message
            then lists all differences, and the model is unchanged.
        ImportError: safetensors is not installed.

    Example:
        ```python
        model = vit_keras.open("ViT-S_16.npz", num_classes=37)
        vit_keras.weights.load_adapters(model, "pets.safetensors")
        ```
    """
    note, tensors = open_adapters(path)
    present = lora_layers(model)
    if present and (others := differences(note, _settings(model), SETTINGS)):
        raise ValueError(
            f"The adapters of model {model.name!r} must match those in {tensors.path!r}. "
            f"Received: {', '.join(others)}"
        )
    _check_tensors(model, note, tensors)
    base, checksum = note["base"], _checksum(model, {*tensors.shapes})
    if checksum != base["sha256"]:
        raise ValueError(
            f"Adapters need the base that they were trained on: {tensors.path!r} needs the one "
            f"called {base['name']!r}, whose blocks have the SHA-256 {base['sha256'][:12]}…. "
            f"Received: model {model.name!r}, whose blocks have {checksum[:12]}…. Open that base"
        )
    checks.check_tensors(tensors, tensors.shapes)
    arrays = tensors.read_all(tensors.shapes)
    tensors.close()
    types = {variable.path: variable.dtype for variable in model.weights}
    typed = ((name, x, types.get(name, "float32")) for name, x in arrays.items())
    checks.check_fit(typed, repr(tensors.path))
    if not present:
        add_lora(model, **{key: note[key] for key in SETTINGS}, train=note["train"])
    variables = {variable.path: variable for variable in model.weights}
    for name, array in arrays.items():
        variables[name].assign(array)
    if isinstance(model, ImageModel):
        model.class_names = note["class_names"]
        model.task = Task(**with_tuples(note["task"]))
    return model


def _settings(model) -> dict[str, Any]:
    """Returns the rank, alpha and layers of a model's adapters."""
    layers = lora_layers(model)
    numbers = {(layer.lora_rank, layer.lora_alpha) for layer in layers}
    if len(numbers) != 1:
        raise ValueError(
            "All adapters in a file must have the same rank and alpha. Received: model "
            f"{model.name!r} with {sorted(numbers) or 'none'}. `models.add_lora` adds them"
        )
    ((rank, alpha),) = numbers
    return {"rank": rank, "alpha": alpha, "layers": sorted({layer.name for layer in layers})}


def _checksum(model, names: set[str]) -> str:
    """Returns the SHA-256 of the unadapted weights in the layers with adapters.

    Embeddings and heads are left out, since a run may resize or replace them.

    Args:
        model: The base, with or without adapters.
        names: The names of the variables in the file.
    """
    owners = {name.split("/")[0] for name in names if name.endswith(LORA)}
    variables = [v for v in model.weights if v.path.split("/")[0] in owners and v.path not in names]
    return checks.digest((variable.path, _array(variable)) for variable in variables)


def _array(variable) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(variable), "float32")


def _check_tensors(model, note, tensors):
    """Raises a ValueError with one line per difference."""
    shapes = {
        f"{layer.path}/{name}": tuple(shape)
        for layer in adaptable_layers(model, note["layers"])
        for name, shape in zip(LORA, lora_shapes(layer, note["rank"]))
    }
    for layer in model.layers:
        if layer.name in note["train"]:
            shapes |= {v.path: tuple(v.shape) for v in layer.weights}
    if faults := differences(tensors.shapes, shapes, {**shapes, **tensors.shapes}):
        title = (
            f"The adapters in {tensors.path!r} do not fit model {model.name!r}; `vit_keras.open("
            "BASE, adapters=FILE)` builds one that they fit. The shapes in the file (there) and in "
            "the model (here):"
        )
        raise ValueError("\n  ".join([title, *faults]))
