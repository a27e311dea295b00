"""Models made from a built model: its intermediates, its attention, another image size."""

import keras

from vit_keras.layers import AddPositionEmbs, EncoderBlock, PatchEmbedding, WithAttentionWeights
from vit_keras.layers.base import pair
from vit_keras.models.image_model import describe_like
from vit_keras.posembed import resize_position_embeddings


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
    embeddings = [layer for layer in model.layers if isinstance(layer, PatchEmbedding)]
    if len(embeddings) != 1:
        raise ValueError(
            "The grid is read from the model's one PatchEmbedding layer. "
            f"Received: model {model.name!r} with {len(embeddings)} of them"
        )
    return embeddings[0].grid(embeddings[0].input.shape[1:3])


def with_image_size(
    model: keras.Model, image_size: int | tuple[int, int], interpolation: str = "bilinear"
) -> keras.Model:
    """The same model and weights for images of `image_size` (height, width) pixels (Section 3.2).

    Position embeddings are interpolated in 2-D; all other weights are copied, none are shared.
    Raises ValueError where the patch, in a hybrid the total stride, does not divide the new size.
    """
    shape = (*pair(image_size, "image_size"), model.input_shape[-1])
    images = keras.Input(shape, dtype=model.input.dtype, name=model.input.name)
    resized = keras.models.clone_model(model, input_tensors=images)
    for old, new in zip(model.layers, resized.layers):
        weights = old.get_weights()
        if isinstance(old, AddPositionEmbs):
            grids = patch_grid(model), patch_grid(resized)
            weights = [resize_position_embeddings(w, *grids, interpolation) for w in weights]
        new.set_weights(weights)
    return describe_like(resized, model)
