"""Writing a model's weights in a format, to a temporary name that then takes the file's place."""

import json
import os
import warnings
import zipfile

import keras
import numpy as np

from vit_keras.files import replacing
from vit_keras.layers.base import check_choice
from vit_keras.models import preprocessing_of
from vit_keras.weights import weight_file
from vit_keras.weights.formats import registry
from vit_keras.weights.formats.base import Format
from vit_keras.weights.numerics import Numerics

UNITS = {
    "gelu": "GELU",
    "layer_norm_epsilon": "layer norm epsilon",
    "standardization": "the standardisation",
    "group_norm_epsilon": "group norm epsilon",
}
COMPUTATION = tuple(UNITS)
OWN = (".keras", ".weights.h5")
FOLDER_NAMES = {".safetensors": "model.safetensors", ".weights.h5": "model.weights.h5"}


def save(model: keras.Model, path: str | os.PathLike, format: str | None = None) -> None:
    """Writes `model` to a file or, where `path` has no suffix of weights, to a folder.

    `format` is a format's name such as "timm"; None writes our own `.keras` or `.weights.h5`. A
    folder also gets the configuration that the other project reads. Raises ValueError for a model
    that the format cannot hold; warns where its code computes differently from the model.
    """
    path = os.fspath(path)
    if format in (None, "vit_keras"):
        return _save_own(model, path)
    check_choice(format, registry.FORMATS, "format")
    form = registry.FORMATS[format]
    arch = form.describe(model)
    form.check(arch)
    numerics = numerics_of(model, arch)
    suffix = next((end for end in form.suffixes if path.endswith(end)), None)
    whole = suffix is None and form.folder is not None and not os.path.splitext(path)[1]
    if suffix is None and not whole:
        folder = " or a folder" if form.folder else ""
        raise ValueError(
            f"{form.name} weights are written to {' or '.join(form.suffixes)}{folder}. "
            f"Received: {path!r}"
        )
    configs = form.folder(arch, numerics) if whole else {}
    _warn_of_numerics(form, arch, numerics, configs)
    tensors = _tensors(model, form, arch)
    note = json.dumps(
        {"architecture": getattr(arch, "arguments", {}), "numerics": numerics.to_json()}
    )
    if whole:
        os.makedirs(path, exist_ok=True)
    if (suffix or form.suffixes[0]) == ".weights.h5":
        _write_h5(path, form.tree, dict(tensors), whole)
    else:
        file = os.path.join(path, FOLDER_NAMES[form.suffixes[0]]) if whole else path
        with replacing(file) as temporary:
            WRITERS[suffix or form.suffixes[0]](temporary, tensors, note)
    for name, config in configs.items():
        _write_json(os.path.join(path, name), config)
    return None


def save_model(model: keras.Model, path: str | os.PathLike) -> None:
    """Writes a `.keras` file whole or not at all: beside it under another name, then renamed."""
    path = os.fspath(path)
    if not path.endswith(".keras"):
        raise ValueError(f"A model is saved to a path that ends in .keras. Received: {path!r}")
    _save_own(model, path)


def numerics_of(model: keras.Model, arch) -> Numerics:
    """How `model` computes and prepares images."""
    names = getattr(model, "class_names", None)
    return Numerics(
        preprocessing=preprocessing_of(model),
        class_names=None if names is None else tuple(names),
        **{key: getattr(arch, key) for key in COMPUTATION if hasattr(arch, key)},
    )


def _save_own(model, path):
    if not path.endswith(OWN):
        raise ValueError(
            f"Without a `format`, weights are written to {' or '.join(OWN)} files. "
            f"Received: {path!r}; formats are {', '.join(map(repr, registry.FORMATS))}"
        )
    with replacing(path) as temporary:
        write = model.save if path.endswith(".keras") else model.save_weights
        write(temporary)


def _tensors(model, form, arch):
    """The file's (name, array) pairs, made one at a time."""
    variables = {variable.path: variable for variable in model.weights}
    for link in form.links(arch):
        ours = [keras.ops.convert_to_numpy(variables.pop(path)) for path in link.ours]
        arrays = link.write(*(np.asarray(array, "float32") for array in ours))
        yield from zip(link.theirs, map(np.ascontiguousarray, arrays))
    if variables:
        raise ValueError(
            f"{form.name} files have no place for {', '.join(variables)} of model {model.name!r}"
        )


def _warn_of_numerics(form: Format, arch, numerics: Numerics, configs: dict) -> None:
    """Says where the format's own code will compute differently."""
    theirs = form.numerics(weight_file.merge(configs))
    # BiT has neither; a stem's belong to hybrids.
    count = 0 if not hasattr(arch, "gelu") else 2 if arch.resnet_layers is None else 4
    for field in COMPUTATION[:count]:
        ours, other, unit = getattr(numerics, field), getattr(theirs, field), UNITS[field]
        if ours != other:
            warnings.warn(
                f"{form.name} computes with {unit} {other!r} and this model with {ours!r}: the "
                "weights are written as they are, and logits there will differ slightly",
                stacklevel=4,
            )


def _write_npz(path, tensors, note):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in tensors:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def _write_safetensors(path, tensors, note):
    from safetensors.numpy import save_file

    save_file(dict(tensors), path, metadata={"format": "pt", weight_file.NOTE: note})


def _write_torch(path, tensors, note):
    import torch

    torch.save({name: torch.from_numpy(np.array(array)) for name, array in tensors}, path)


WRITERS = {
    ".npz": _write_npz,
    ".safetensors": _write_safetensors,
    ".pth": _write_torch,
    ".bin": _write_torch,
}


def _write_h5(path, tree, tensors, whole):
    """Groups and numbers as Keras looks for them, with the layers' names as it notes them."""
    import h5py

    for file_name, places in tree(list(tensors), whole).items():
        with (
            replacing(os.path.join(path, file_name) if whole else path) as temporary,
            h5py.File(temporary, "w") as file,
        ):
            for name, groups in places.items():
                group = file
                for key, layer in groups:
                    group = group.require_group(key)
                    if layer is not None:
                        group.require_group("vars").attrs["name"] = layer
                group["vars"][name.rpartition("/")[2]] = tensors[name]
            file.require_group("vars")


def _write_json(path, content):
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
