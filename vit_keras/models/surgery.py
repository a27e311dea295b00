"""Models that are made from a built model and share its weights: intermediates, attention."""

from collections.abc import Iterator

import keras

from vit_keras.layers import (
    EncoderBlock,
    PatchEmbedding,
    ResNetStage,
    RootBlock,
    StdConv,
    WithAttentionWeights,
)
from vit_keras.models.description import copy_description
from vit_keras.models.image_model import ImageModel

# The layers that a backbone is made of.
BACKBONE = (EncoderBlock, PatchEmbedding, ResNetStage, RootBlock, StdConv)


def backbone_of(model: keras.Model) -> keras.Model:
    """Returns the model that holds the blocks: `model` itself, or the one that it calls first.

    Raises:
        ValueError: There are several inside `model`, or other layers come before the only one. The
            message names them.

    Example:
        >>> backbone_of(keras.Sequential([base, keras.layers.Dense(4)])) is base
        True
    """
    places = nested_backbones(model)
    if not places:
        return model
    (backbone, is_first), *others = places.values()
    if others or not is_first:
        why = "it holds several" if others else "other layers come before it"
        raise ValueError(
            "A model inside of another model must be the only backbone and read the images first. "
            f"Received: model {model.name!r}, where {why}. Pass the backbone: {', '.join(places)}"
        )
    return backbone


def nested_backbones(model: keras.Model) -> dict[str, tuple[keras.Model, bool]]:
    """The backbones inside a model that has no blocks itself, by how to get them.

    Returns:
        `{'model.get_layer("…")': (backbone, whether it reads the images first)}`.
    """
    if any(isinstance(layer, BACKBONE) for layer in model.layers):
        return {}
    return dict(_nested(model, "model", True))


def _nested(model, place, first) -> Iterator[tuple[str, tuple[keras.Model, bool]]]:
    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    for number, layer in enumerate(layers):
        if isinstance(layer, keras.Model):
            inside, is_first = f'{place}.get_layer("{layer.name}")', first and number == 0
            if any(isinstance(sublayer, BACKBONE) for sublayer in layer.layers):
                yield inside, (layer, is_first)
            else:
                yield from _nested(layer, inside, is_first)


def intermediates(model: keras.Model) -> keras.Model:
    """Makes a model that puts out the result of every layer, from the embedding to the logits.

    Args:
        model: A functional model, or one that calls such a model first.

    Returns:
        A model that shares the weights of `model` and maps its input to `{layer name: output}`. The
        outputs of the transformer's blocks are `encoderblock_{i}`, each `(B, N, D)`.

    Example:
        >>> intermediates(model).predict(images)["encoderblock_3"].shape
        (8, 197, 768)
    """
    model = backbone_of(model)
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
    model = backbone_of(model)
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
    model = backbone_of(model)
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
