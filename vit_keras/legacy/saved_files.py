"""Opens models that vit-keras 0.1 and 0.2 saved, with Keras 2 and Keras 3.

Nothing in a file runs. Its `Lambda` layer, which takes the class token, is replaced by
`TakeClassToken`, and Keras refuses others.
"""

import contextlib
import os
import tempfile
from typing import Any

import keras

from vit_keras import layers
from vit_keras.layers.version_0 import LAYERS
from vit_keras.support import extras
from vit_keras.weights.containers import archives
from vit_keras.weights.containers.checks import DamagedFile, check_claim, parse_json, readable
from vit_keras.weights.containers.keras_h5 import read_names

MODELS = {"Functional": keras.Model, "Model": keras.Model, "Sequential": keras.Sequential}
CONFIG, VERSION, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"


def load_model(path: str | os.PathLike, custom_objects: dict | None = None) -> keras.Model:
    """Opens a model that vit-keras 0.1 or 0.2 saved, alone or inside a model of your own.

    `keras.models.load_model` opens such files as well if they were saved with Keras 3, but runs
    code in them, and asks for `safe_mode=False`. This function runs none.

    Args:
        path: A `.keras` file, or an `.h5` file of a whole model. A file of weights alone goes into
            a model from `vit_keras.vit` with `model.load_weights`.
        custom_objects: `{name: class or function}` of your own layers and losses.

    Returns:
        The model, which is not compiled.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If the file is damaged, or holds no such model.

    Example:
        ```python
        model = vit_keras.legacy.load_model("flowers.h5")
        ```
    """
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no model file at {path!r}.")
    with contextlib.ExitStack() as stack:
        read = _read_keras if path.endswith(".keras") else _read_h5
        config, version, weights = read(path, stack)
        with readable(f"{path!r} cannot be read as a model of vit-keras 0.x"):
            model = _build(_translated(config, version.startswith("2")), custom_objects)
            model.load_weights(weights)
    return model


def _read_keras(path, stack):
    """The config, the version of Keras, and a copy of the weights, in a `.keras` file."""
    archive = stack.enter_context(archives.opened(path, "Keras file"))
    archives.verify_members(path, archive)
    config, metadata = (
        parse_json(archive.read(name), f"{name!r} in {path!r}") for name in (CONFIG, VERSION)
    )
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vit_keras_"))
    weights = archive.extract(WEIGHTS, folder)
    _check_hdf5(weights, f"{WEIGHTS!r} in {path!r}")
    return config, str(metadata["keras_version"]), weights


def _read_h5(path, stack):
    """The config, the version of Keras, and the path, of an `.h5` file."""
    h5py = _check_hdf5(path, repr(path))
    with readable(f"{path!r} is no HDF5 file, or is damaged"), h5py.File(path) as file:
        attributes = {name: file.attrs.get(name) for name in ("model_config", "keras_version")}
    if attributes["model_config"] is None:
        raise ValueError(
            "`path` must be a file of a whole model. "
            f"Received: {path!r}, which holds weights alone. Build the model by `vit_keras.vit`, "
            "and call its `load_weights`"
        )
    texts = {k: v.decode() if isinstance(v, bytes) else str(v) for k, v in attributes.items()}
    config = parse_json(texts["model_config"], f"The configuration in {path!r}")
    return config, texts["keras_version"], path


def _check_hdf5(path, label):
    """Looks at a file before HDF5's library reads its arrays; returns `h5py`.

    Raises:
        DamagedFile: The file is damaged, its arrays lie in other files, or they are far larger
            than the file.
    """
    h5py = extras.require("h5py", extra="weights", purpose="Reading .h5 files")
    read_names(path, fault := f"{label} is no HDF5 file, or is damaged")
    with readable(fault), h5py.File(path) as file:
        check_claim(path, sum(item.nbytes for item in _arrays(file, h5py, label)))
    return h5py


def _arrays(file, h5py, label):
    """Yields the arrays of an HDF5 file; raises if one lies in another file."""
    groups, seen = [file], set()
    while groups:
        group = groups.pop()
        place = h5py.h5o.get_info(group.id).addr
        if place in seen:
            raise DamagedFile(f"{label} holds the group {group.name!r} at two places")
        seen.add(place)
        for key in group:
            inside = isinstance(group.get(key, getlink=True), h5py.HardLink)
            item = group[key] if inside else None
            if isinstance(item, h5py.Group):
                groups.append(item)
            elif item is None or item.external or item.is_virtual:
                raise DamagedFile(f"{label} holds a link {group.name}/{key} elsewhere")
            else:
                yield item


def _build(config, custom_objects) -> keras.Model:
    kind = config["class_name"]
    if kind not in MODELS:
        raise ValueError(
            f"The model must be one of {', '.join(map(repr, MODELS))}. Received: {kind!r}"
        )
    return MODELS[kind].from_config(config["config"], custom_objects=custom_objects)


def _translated(node: Any, keras_2: bool) -> Any:
    """The configuration with today's layers, and with names that Keras 3 allows."""
    if isinstance(node, str):
        return "Transformer_" + node[12:] if node.startswith("Transformer/") else node
    if isinstance(node, list):
        return [_translated(item, keras_2) for item in node]
    if not isinstance(node, dict):
        return node
    node = _with_layer_of_today(node, keras_2)
    return {key: _translated(value, keras_2) for key, value in node.items()}


def _with_layer_of_today(node, keras_2):
    config = node.get("config")
    if "class_name" not in node or not isinstance(config, dict):
        return node
    name = str(node["class_name"]).rpartition(">")[2]
    if name == "Lambda" and config.get("name") == "ExtractToken":
        kept = {key: config[key] for key in ("name", "trainable", "dtype") if key in config}
        calls = [c | {"kwargs": {}} if "kwargs" in c else c for c in node.get("inbound_nodes", [])]
        return node | {"config": kept, "inbound_nodes": calls} | _place(layers.TakeClassToken)
    if name in LAYERS:
        return node | _place(LAYERS[name])
    if keras_2:  # without a module, Keras 3 reads it as one of Keras 2
        node = {k: v for k, v in node.items() if k not in ("module", "registered_name")}
        return node | {"config": {k: _single(k, v) for k, v in config.items()}}
    return node


def _single(key, value):
    """The one tensor of a model, which in Keras 3 would stay in its list."""
    return value[0] if key in ("input_layers", "output_layers") and len(value) == 1 else value


def _place(kind) -> dict[str, str]:
    """Where Keras finds the class of a layer."""
    registered = keras.saving.get_registered_name(kind)
    return {"class_name": kind.__name__, "module": kind.__module__, "registered_name": registered}
