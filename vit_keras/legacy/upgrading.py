"""Models of vit-keras 0.x as models of today, and weights from one into the other."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from vit_keras.layers.transformer_block import TransformerBlock
from vit_keras.models import ImageModel, Preprocessing, VisionTransformer

AS_OPENCV = Preprocessing(antialias=False, rounding="none")  # as 0.x resized pictures, bilinear
STEM = ("embedding", "class_token", "Transformer_posembed_input")
ATTENTION = "MultiHeadDotProductAttention_1"
BRANCHES = ("LayerNorm_0", ATTENTION, "LayerNorm_2", "MlpBlock_3/Dense_0", "MlpBlock_3/Dense_1")


def upgrade(model: keras.Model) -> ImageModel:
    """Makes a `VisionTransformer` that computes what a model of vit-keras 0.x computes.

    Evaluation, exports, pictures of attention and all other functions of this package take it.
    In training it drops part of the embedded patches too, at the model's own rate.

    Args:
        model: A model from `vit_keras.vit` or `load_model`. Of a model with layers of your own,
            give the part that `vit_keras.vit` made, such as `model.layers[0]`.

    Returns:
        A new model with the same outputs. Its pictures are resized and scaled as `utils.read` and
        `vit.preprocess_inputs` do.

    Raises:
        ValueError: If the model is none of vit-keras 0.x, or has other layers beside.

    Example:
        ```python
        model = vit_keras.legacy.upgrade(vit_keras.legacy.load_model("old.h5"))
        model.save("model.keras")  # for `vit-keras export model.keras`
        ```
    """
    arguments = _arguments(model)
    upgraded = VisionTransformer(**arguments)
    variables = {variable.path: variable for variable in upgraded.weights}
    for path, variable in _paths(model):
        _copy(variable, variables[path])
    upgraded.preprocessing = AS_OPENCV
    return upgraded


def downgrade(upgraded: keras.Model, model: keras.Model) -> None:
    """Copies the weights of what `upgrade(model)` returned into `model`."""
    variables = {variable.path: variable for variable in upgraded.weights}
    for path, variable in _paths(model):
        _copy(variables[path], variable)


def blocks_of(model: keras.Model) -> list[TransformerBlock]:
    """Returns the blocks of a model of vit-keras 0.x, in the order of the computation."""
    return [layer for layer in model.layers if isinstance(layer, TransformerBlock)]


def _arguments(model) -> dict[str, Any]:
    """Reads the arguments of `VisionTransformer` off a model of 0.x."""
    named = {layer.name: layer for layer in model.layers}
    blocks = blocks_of(model)
    body = {*STEM, *(block.name for block in blocks), "Transformer_encoder_norm"}
    others = {
        name
        for name, layer in named.items()
        if name not in body | {"ExtractToken", "pre_logits", "head"}
        and not isinstance(layer, (keras.layers.InputLayer, keras.layers.Reshape))
    }
    if not blocks or others or not body <= set(named):
        raise ValueError(
            "`model` must be a model of vit-keras 0.x and no more, as `vit.build_model` makes it. "
            f"Received: model {model.name!r} with the layers {', '.join(named)}. Of a model with "
            "layers of your own, give the part that `vit_keras.vit` made"
        )
    embedding, head, pre_logits = named["embedding"], named.get("head"), named.get("pre_logits")
    activation = None if head is None else head.activation
    return {
        "image_size": tuple(model.input_shape[1:3]),
        "patch_size": tuple(embedding.kernel_size),
        "hidden_size": embedding.filters,
        "num_layers": len(blocks),
        "num_heads": blocks[0].num_heads,
        "mlp_dim": blocks[0].mlp_dim,
        "dropout_rate": blocks[0].dropout_rate,
        "num_classes": None if head is None else head.units,
        "representation_size": None if pre_logits is None else pre_logits.units,
        "classifier_activation": None if activation is keras.activations.linear else activation,
        "name": model.name,
    }


def _paths(model) -> Iterator[tuple[str, keras.Variable]]:
    """Yields (path in a `VisionTransformer`, variable of a model of 0.x) for all variables."""
    named = {layer.name: layer for layer in model.layers}
    yield "cls/cls", named["class_token"].cls
    yield "posembed_input/pos_embedding", named["Transformer_posembed_input"].pos_embedding
    sublayers = {"encoder_norm": named["Transformer_encoder_norm"]}
    for i, block in enumerate(blocks_of(model)):
        names = (
            "LayerNorm_0",
            ATTENTION,
            "LayerNorm_2",
            "MlpBlock_3/Dense_0",
            "MlpBlock_3/Dense_1",
        )
        for name, layer in zip(names, block.branches):
            sublayers[f"encoderblock_{i}/{name}"] = layer
        attention = sublayers.pop(f"encoderblock_{i}/{ATTENTION}")
        for name, layer in zip(("query", "key", "value", "out"), attention.branches):
            sublayers[f"encoderblock_{i}/{ATTENTION}/{name}"] = layer
    for name in ("embedding", "pre_logits", "head"):
        if name in named:
            sublayers[name] = named[name]
    for path, layer in sublayers.items():
        yield from ((f"{path}/{variable.name}", variable) for variable in layer.weights)


def _copy(source, target) -> None:
    """Assigns a variable to another one, whose shape splits or joins the heads.

    The numbers are copied: JAX's arrays would be shared, and lost with the first step.
    """
    target.assign(np.array(keras.ops.convert_to_numpy(source)).reshape(target.shape))
