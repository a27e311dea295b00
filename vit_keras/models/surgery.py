"""Models that are made from a built model: intermediates, attention, another image size."""

import keras

from vit_keras.layers import (
    AddPositionEmbs,
    AddPositionEmbs2D,
    EncoderBlock,
    PatchEmbedding,
    WithAttentionWeights,
)
from vit_keras.layers.base import pair
from vit_keras.models.description import copy_description
from vit_keras.models.image_model import ImageModel
from vit_keras.models.lora import lora_layers, merge_lora
from vit_keras.resizing import resize_axis_embeddings, resize_position_embeddings


def intermediates(model: keras.Model) -> keras.Model:
    """Makes a model that puts out the result of every layer, from the embedding to the logits.

    Args:
        model: A functional model.

    Returns:
        A model that shares the weights of `model` and maps its input to `{layer name: output}`. The
        outputs of the transformer's blocks are `encoderblock_{i}`, each `(B, N, D)`.

    Example:
        >>> intermediates(model).predict(images)["encoderblock_3"].shape
        (8, 197, 768)
    """
    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    outputs = {layer.name: layer.output for layer in layers}
    made = ImageModel(model.input, outputs, name=f"{model.name}_intermediates")
    return copy_description(made, model)


def attention_maps(model: keras.Model) -> keras.Model:
    """Makes a model that puts out the attention weights of all layers (Eq. 6).

    Row q of a map sums to 1 and says how much token q takes from each token. A class token comes
    first.

    Args:
        model: A functional model with `EncoderBlock` layers, such as a `VisionTransformer`.

    Returns:
        A model that shares the weights of `model` and maps its input to attention weights
        `(B, layers, heads, N, N)`.

    Raises:
        ValueError: The model has no `EncoderBlock`.

    Example:
        >>> attention_maps(model).predict(images).shape
        (8, 12, 12, 197, 197)
    """
    maps = []

    def call(layer, *args, **kwargs):
        if not isinstance(layer, EncoderBlock):
            return layer(*args, **kwargs)
        wrapper = WithAttentionWeights(layer, dtype=layer.dtype_policy, name=layer.name)
        x, weights = wrapper(*args, **kwargs)
        maps.append(weights)
        return x

    copy = keras.models.clone_model(model, clone_function=lambda layer: layer, call_function=call)
    if not maps:
        raise ValueError(
            "Attention maps need a model with EncoderBlock layers. "
            f"Received: model {model.name!r}, which has none"
        )
    outputs = keras.ops.stack(maps, axis=1)
    made = ImageModel(copy.input, outputs, name=f"{model.name}_attention")
    return copy_description(made, model)


def patch_grid(model: keras.Model) -> tuple[int, int]:
    """Returns the rows and columns of the patches that a model cuts its input into.

    In a hybrid the patches are cut from the feature map of the ResNet.

    Args:
        model: A functional model with one `PatchEmbedding` layer.

    Returns:
        (rows, columns).

    Raises:
        ValueError: The model has no `PatchEmbedding`, or several.

    Example:
        >>> patch_grid(vit_keras.models.from_variant("Ti/16", image_size=(96, 224), num_classes=10))
        (6, 14)
    """
    return _grid_of(model.layers, model.name)


def _grid_of(layers, name):
    embeddings = [layer for layer in layers if isinstance(layer, PatchEmbedding)]
    if len(embeddings) != 1:
        raise ValueError(
            "The grid of patches needs a model with one PatchEmbedding layer. "
            f"Received: model {name!r} with {len(embeddings)} of them"
        )
    return embeddings[0].grid(embeddings[0].input.shape[1:3])


def with_image_size(
    model: keras.Model, image_size: int | tuple[int, int], interpolation: str = "bilinear"
) -> keras.Model:
    """Copies a model and its weights for images of another size (Section 3.2).

    Position embeddings are interpolated in 2-D; embeddings of columns and rows are interpolated
    along their own axis. All other weights are copied, and none are shared. Adapters are merged.

    Args:
        model: A functional model of this package.
        image_size: Pixels, an int or (height, width).
        interpolation: A name in `vit_keras.resizing`: "bilinear" as published, or another.

    Returns:
        A model with the preprocessing and the class names of `model`.

    Raises:
        ValueError: The patch, or the total stride of a hybrid, does not divide `image_size`, or the
            model has relative position embeddings, which belong to one grid of patches.

    Example:
        >>> with_image_size(model, 384).input_shape  # of a model for 224 pixels
        (None, 384, 384, 3)
    """
    shape = (*pair(image_size, "image_size"), model.input_shape[-1])
    model = merge_lora(model) if lora_layers(model) else model
    images = keras.Input(shape, dtype=model.input.dtype, name=model.input.name)
    cloned: list[keras.layers.Layer] = []

    def clone(layer):
        config = layer.get_config()
        if config.get("grid") is not None:  # the new PatchEmbedding is cloned before
            config["grid"] = _grid_of(cloned, model.name)
        if config.get("position_embedding") == "relative":
            _refuse_relative(patch_grid(model), config["grid"])
        cloned.append(type(layer).from_config(config))
        return cloned[-1]

    resized = keras.models.clone_model(model, input_tensors=images, clone_function=clone)
    for old, new in zip(model.layers, resized.layers):
        weights = old.get_weights()
        if type(old) in RESIZE:
            grids = patch_grid(model), patch_grid(resized)
            weights = RESIZE[type(old)](weights, *grids, interpolation)
        new.set_weights(weights)
    return copy_description(resized, model)


def _refuse_relative(old, new):
    if old != new:
        raise ValueError(
            "Relative position embeddings belong to offsets in the sequence, where one offset "
            "stands for several pairs of rows and columns, so they have no other size. 'rope2d' "
            "and added position embeddings can be resized. Received: a model with "
            f"{old[0]}x{old[1]} patches, to become {new[0]}x{new[1]}"
        )


def _resize_whole(weights, old, new, interpolation):
    return [resize_position_embeddings(w, old, new, interpolation) for w in weights]


def _resize_axes(weights, old, new, interpolation):
    horizontal, vertical, *class_token = weights
    rows, columns = new
    return [
        resize_axis_embeddings(horizontal, columns, interpolation),
        resize_axis_embeddings(vertical, rows, interpolation),
        *class_token,
    ]


RESIZE = {AddPositionEmbs: _resize_whole, AddPositionEmbs2D: _resize_axes}
