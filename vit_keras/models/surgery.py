"""Models made from a built model: its intermediates, its attention, another image size."""

import keras

from vit_keras.layers import (
    AddPositionEmbs,
    AddPositionEmbs2D,
    EncoderBlock,
    PatchEmbedding,
    WithAttentionWeights,
)
from vit_keras.layers.base import pair
from vit_keras.models.image_model import copy_description
from vit_keras.resizing import resize_axis_embeddings, resize_position_embeddings


def intermediates(model: keras.Model) -> keras.Model:
    """A model of `{layer name: output}` for every layer, from the embedding to the logits.

    The outputs of the transformer blocks are `encoderblock_{i}`, `(B, N, D)`. Weights are shared.
    """
    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    outputs = {layer.name: layer.output for layer in layers}
    return keras.Model(model.input, outputs, name=f"{model.name}_intermediates")


def attention_maps(model: keras.Model) -> keras.Model:
    """A model of all attention weights, `(B, layers, heads, N, N)`; weights are shared.

    Row q of a map sums to 1: how much token q takes from each token. A class token comes first.
    Raises ValueError where the model has no `EncoderBlock`.
    """
    maps = []

    def call(layer, *args, **kwargs):
        if not isinstance(layer, EncoderBlock):
            return layer(*args, **kwargs)
        wrapper = WithAttentionWeights(layer, dtype=layer.dtype_policy, name=layer.name)
        x, weights = wrapper(*args, **kwargs)
        maps.append(weights)
        return x

    model_again = keras.models.clone_model(
        model, clone_function=lambda layer: layer, call_function=call
    )
    if not maps:
        raise ValueError(
            f"Attention is read from EncoderBlock layers, and model {model.name!r} has none."
        )
    outputs = keras.ops.stack(maps, axis=1)
    return keras.Model(model_again.input, outputs, name=f"{model.name}_attention")


def patch_grid(model: keras.Model) -> tuple[int, int]:
    """Rows and columns of the patches that `model` cuts its input into."""
    return _grid_of(model.layers, model.name)


def _grid_of(layers, name):
    embeddings = [layer for layer in layers if isinstance(layer, PatchEmbedding)]
    if len(embeddings) != 1:
        raise ValueError(
            "The grid is read from the model's one PatchEmbedding layer. "
            f"Received: model {name!r} with {len(embeddings)} of them"
        )
    return embeddings[0].grid(embeddings[0].input.shape[1:3])


def with_image_size(
    model: keras.Model, image_size: int | tuple[int, int], interpolation: str = "bilinear"
) -> keras.Model:
    """The same model and weights for images of `image_size` (height, width) pixels (Section 3.2).

    Position embeddings are interpolated in 2-D, those of columns and rows each along its axis; all
    other weights are copied, none are shared. Raises ValueError where the patch, in a hybrid the
    total stride, does not divide the new size, and for relative position embeddings.
    """
    shape = (*pair(image_size, "image_size"), model.input_shape[-1])
    images = keras.Input(shape, dtype=model.input.dtype, name=model.input.name)
    made = []

    def clone(layer):
        config = layer.get_config()
        if config.get("grid") is not None:  # the new patches were made before
            config["grid"] = _grid_of(made, model.name)
        if config.get("position_embedding") == "relative":
            _refuse_relative(patch_grid(model), config["grid"])
        made.append(type(layer).from_config(config))
        return made[-1]

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
            "Relative position embeddings belong to offsets in the sequence, and one offset stands "
            "for several pairs of rows and columns: they have no other size; 'rope2d' and the "
            f"embeddings that are added have. Received: {old[0]}x{old[1]} patches, to become "
            f"{new[0]}x{new[1]}"
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
