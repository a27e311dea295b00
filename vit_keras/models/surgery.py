"""Models that are made from a built model and share its weights: intermediates, attention."""

import keras

from vit_keras.layers import EncoderBlock, PatchEmbedding, WithAttentionWeights
from vit_keras.models.description import copy_description
from vit_keras.models.image_model import ImageModel


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
        ValueError: The model has no `EncoderBlock`, or one that attends within windows.

    Example:
        >>> attention_maps(model).predict(images).shape
        (8, 12, 12, 197, 197)
    """
    refuse_windows(model, "Attention maps")
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


def refuse_windows(model: keras.Model, subject: str) -> None:
    """Raises ValueError for a model whose blocks do not all attend to all tokens.

    Args:
        model: A functional model.
        subject: What needs attention between all tokens, as the message's subject, in the plural.
    """
    if blocks := windowed_blocks(model.layers):
        raise ValueError(
            f"{subject} need blocks that attend to all tokens. Received: model {model.name!r}, "
            f"where {', '.join(block.name for block in blocks)} attend within windows, "
            f"window_size={blocks[0].options.window_size}. "
            "`WithAttentionWeights` returns the weights of one of `global_blocks`"
        )


def windowed_blocks(layers: list[keras.layers.Layer]) -> list[EncoderBlock]:
    """Returns those of some layers that are blocks and attend within windows."""
    blocks = [layer for layer in layers if isinstance(layer, EncoderBlock)]
    return [block for block in blocks if block.options.window_size is not None]


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
    return grid_of_layers(model.layers, model.name)


def grid_of_layers(layers, name: str) -> tuple[int, int]:
    """As `patch_grid`, for layers that have been called and the name of their model."""
    embeddings = [layer for layer in layers if isinstance(layer, PatchEmbedding)]
    if len(embeddings) != 1:
        raise ValueError(
            "The grid of patches needs a model with one PatchEmbedding layer. "
            f"Received: model {name!r} with {len(embeddings)} of them"
        )
    return embeddings[0].grid(embeddings[0].input.shape[1:3])
