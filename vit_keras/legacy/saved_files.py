"""Opens models that vit-keras 0.1 and 0.2 saved, with Keras 2 or Keras 3.

No code in a file is executed. The `Lambda` layer that takes the class token is replaced by
`TakeClassToken`, and Keras refuses any other `Lambda`.
"""

import contextlib
import os
import re
import tempfile
from typing import Any

import keras
import numpy as np

from vit_keras import layers
from vit_keras.legacy.layers import LAYERS, TransformerBlock
from vit_keras.models import ImageModel, Preprocessing, VisionTransformer
from vit_keras.support import extras
from vit_keras.support.checks import parse_json
from vit_keras.weights.containers import archives, h5_names
from vit_keras.weights.containers.checks import check_claim, readable
from vit_keras.weights.containers.keras_h5 import check_names

MODELS = {"Functional": keras.Model, "Model": keras.Model, "Sequential": keras.Sequential}


def load_model(path: str | os.PathLike, custom_objects: dict | None = None) -> keras.Model:
    """Opens a model that vit-keras 0.1 or 0.2 saved, alone or inside your own model.

    `keras.models.load_model` can also open such files if they were saved with Keras 3, but it
    executes code in them and requires `safe_mode=False`. This function executes none.

    Args:
        path: A `.keras` file, or an `.h5` file of a whole model. To read a file that holds only
            weights, build a model with `vit_keras.vit` and call `model.load_weights`.
        custom_objects: `{name: class or function}` for your own layers and losses.

    Returns:
        The model. It is not compiled.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If the file is damaged or does not hold such a model.

    Example:
        ```python
        model = vit_keras.legacy.load_model("flowers.h5")
        ```
    """
    path = os.fspath(path)
    os.stat(path)  # raises FileNotFoundError
    with contextlib.ExitStack() as stack:
        weights, fault = path, f"{path!r} is not an HDF5 file, or is damaged"
        if path.endswith(".keras"):
            archive = stack.enter_context(archives.opened(path, "Keras file"))
            config, metadata = map(archive.read, ("config.json", "metadata.json"))
            version = parse_json(metadata, f"The metadata in {path!r}")["keras_version"]
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vit_keras_"))
            weights = archive.extract("model.weights.h5", folder)
        check_names(weights, fault)
        with readable(fault), extras.require("h5py").File(weights) as file:
            check_claim(weights, sum(array.nbytes for _, array in h5_names.datasets(file)))
            if weights is path:
                config, version = map(file.attrs.get, ("model_config", "keras_version"))
        if config is None:
            raise ValueError(
                f"`path` must be a file of a whole model. Received: {path!r}, which holds only "
                "weights. Build the model with `vit_keras.vit`, and call its `load_weights`"
            )
        with readable(f"{path!r} cannot be read as a model of vit-keras 0.x"):
            node = parse_json(config, f"The configuration in {path!r}")
            node = _translated(node, keras_2=os.fsdecode(version).startswith("2"))
            kind = MODELS[node["class_name"]]
            model = kind.from_config(node["config"], custom_objects=custom_objects)
            model.load_weights(weights)
    return model


def _translated(node: Any, keras_2: bool) -> Any:
    """The configuration with current layers, and with names that Keras 3 allows."""
    if isinstance(node, str):
        return re.sub("^Transformer/", "Transformer_", node)
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
    if keras_2:  # without a module, Keras 3 reads it as a class of Keras 2
        node = {k: v for k, v in node.items() if k not in ("module", "registered_name")}
        for key in ("input_layers", "output_layers"):
            if len(config.get(key, ())) == 1:  # Keras 3 would leave the only tensor in its list
                config = config | {key: config[key][0]}
        node["config"] = config
    return node


def _place(kind) -> dict[str, str]:
    """The place where Keras finds the class of a layer."""
    registered = keras.saving.get_registered_name(kind)
    return {"class_name": kind.__name__, "module": kind.__module__, "registered_name": registered}


AS_OPENCV = Preprocessing(antialias=False, rounding="none")  # bilinear resizing of 0.x
STEM = ["embedding", "class_token", "Transformer_posembed_input"]


def upgrade(model: keras.Model) -> ImageModel:
    """Makes a `VisionTransformer` that computes the same function as a model of vit-keras 0.x.

    Evaluation, export, attention pictures and all other functions of this package accept it. In
    training, it also applies dropout to the embedded patches, at the model's own rate.

    Args:
        model: A model from `vit_keras.vit` or `load_model`. If it has your own layers, pass only
            the submodel that `vit_keras.vit` made, such as `model.layers[0]`.

    Returns:
        A new model with the same outputs. Its pictures are resized and scaled as in `utils.read`
        and `vit.preprocess_inputs`.

    Raises:
        ValueError: If the model is not from vit-keras 0.x, or has additional layers.

    Example:
        ```python
        model = vit_keras.legacy.upgrade(vit_keras.legacy.load_model("old.h5"))
        model.save("model.keras")  # for `vit-keras export model.keras`
        ```
    """
    upgraded = VisionTransformer(**_arguments(model))
    _copy({_path(variable): variable for variable in model.weights}, upgraded.weights)
    upgraded.preprocessing = AS_OPENCV
    return upgraded


def downgrade(upgraded: keras.Model, model: keras.Model) -> None:
    """Copies the weights of a model from `upgrade(model)` back into `model`."""
    _copy({variable.path: variable for variable in upgraded.weights}, model.weights)


def _copy(sources, targets) -> None:
    """Copies variables to those with the same path, whose shapes may join or split the heads.

    The numbers are copied; JAX's arrays would otherwise be shared, and lost in the first step.
    """
    for target in targets:
        source = keras.ops.convert_to_numpy(sources[_path(target)])
        target.assign(np.array(source).reshape(target.shape))


def _path(variable):
    """Returns a variable's path in a `VisionTransformer`, also for a model of vit-keras 0.x."""
    path = re.sub(r"/Transformer_encoderblock_\d+_Dense_", "/MlpBlock_3/Dense_", variable.path)
    return path.replace("class_token/", "cls/").removeprefix("Transformer_")


def blocks_of(model: keras.Model) -> list[TransformerBlock]:
    """Returns the blocks of a model of vit-keras 0.x, in the order of computation."""
    return [layer for layer in model.layers if isinstance(layer, TransformerBlock)]


def _arguments(model) -> dict[str, Any]:
    """Reads the arguments of `VisionTransformer` from a model of 0.x."""
    blocks, plain = blocks_of(model), (keras.layers.InputLayer, keras.layers.Reshape)
    named = {layer.name: layer for layer in model.layers if not isinstance(layer, plain)}
    body = [*STEM, *(x.name for x in blocks), "Transformer_encoder_norm", "ExtractToken"]
    if not blocks or [x for x in named if x not in ("pre_logits", "head")] != body:
        raise ValueError(
            "`model` must be a model of vit-keras 0.x alone, as `vit.build_model` returns it. "
            f"Received: model {model.name!r} with the layers {', '.join(named)}. If some of them "
            "are your own, pass only the submodel that `vit_keras.vit` made"
        )
    embedding, head, pre_logits = named["embedding"], named.get("head"), named.get("pre_logits")
    return {
        "image_size": tuple(model.input_shape[1:3]),
        "patch_size": tuple(embedding.kernel_size),
        "hidden_size": embedding.filters,
        "num_layers": len(blocks),
        "num_heads": blocks[0].num_heads,
        "mlp_dim": blocks[0].mlp_dim,
        "dropout_rate": blocks[0].dropout_rate,
        "num_classes": head and head.units,
        "representation_size": pre_logits and pre_logits.units,
        "classifier_activation": head and head.activation,
        "name": model.name,
    }
