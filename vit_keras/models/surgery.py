"""Models made from a built model whose weights they share, and facts read from its layers."""

import math
from typing import NamedTuple

import keras
import numpy as np

from vit_keras import layers
from vit_keras.layers.common import check_choice
from vit_keras.models.description import copy_description, has_layer, with_outputs
from vit_keras.models.image_model import ImageModel

# The layers that form a backbone.
BACKBONE = layers.EncoderBlock, layers.PatchEmbedding, layers.ResNetStage, layers.RootBlock


def backbone_of(model: keras.Model) -> keras.Model:
    """Returns the model that holds the blocks: `model` itself, or the one that it calls first.

    Raises:
        ValueError: If `model` contains several, or if other layers come before the only one. The
            message names them.

    Example:
        >>> backbone_of(keras.Sequential([base, keras.layers.Dense(4)])) is base
        True
    """
    models, first = backbones(model), model
    if not models:
        return model
    while isinstance(first, keras.Model) and first not in models.values():
        first = layers_of(first)[0]
    if len(models) > 1 or first not in models.values():
        why = "it holds several backbones" if len(models) > 1 else "other layers come before it"
        raise ValueError(
            "A model inside another model must be the only backbone and read the images first. "
            f"Received: model {model.name!r}; {why}. Pass the backbone: {', '.join(models)}"
        )
    return first


def backbones(model: keras.Model, place: str = "model") -> dict[str, keras.Model]:
    """Returns the models with blocks of their own, `model` or models in it, by how to get them."""
    if any(isinstance(layer, BACKBONE) for layer in model.layers):
        return {place: model}
    models: dict[str, keras.Model] = {}
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            models |= backbones(layer, f'{place}.get_layer("{layer.name}")')
    return models


def layers_of(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers that compute something."""
    return [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]


def intermediates(model: keras.Model) -> keras.Model:
    """Makes a model that outputs the result of every layer, from the embedding to the logits.

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
    outputs = {layer.name: layer.output for layer in layers_of(model)}
    return with_outputs(model, outputs, f"{model.name}_intermediates")


def attention_maps(model: keras.Model) -> keras.Model:
    """Makes a model that outputs the attention weights of all layers (Eq. 6).

    Row q of a map sums to 1 and tells how much token q takes from each token. A class token comes
    first.

    Args:
        model: A functional model with `EncoderBlock` layers, such as a `VisionTransformer`.

    Returns:
        A model that shares the weights of `model` and maps its input to attention weights
        `(B, layers, heads, N, N)`.

    Raises:
        ValueError: If the model has no `EncoderBlock`, or one that attends within windows.

    Example:
        >>> attention_maps(model).predict(images).shape
        (8, 12, 12, 197, 197)
    """
    model = backbone_of(model)
    whole, _ = with_attention_weights(model)
    outputs = keras.ops.stack(whole.outputs[1:], axis=1)
    return copy_description(ImageModel(whole.input, outputs, name=f"{model.name}_attention"), model)


def with_attention_weights(model: keras.Model) -> tuple[keras.Model, list]:
    """Makes a model that also outputs the attention weights of its blocks, or of its backbone's.

    Args:
        model: A functional or sequential model.

    Returns:
        A model that shares the weights of `model` and gives a list of its output and the weights
        `(B, heads, N, N)` of each block; and its `WithAttentionWeights` layers, in order.

    Raises:
        ValueError: If the model has no `EncoderBlock`, or one that attends within windows.
    """
    refuse_windows(backbone_of(model))
    wrappers: list[layers.WithAttentionWeights] = []
    maps: list = []

    def call(layer, *args, **kwargs):
        if isinstance(layer, layers.EncoderBlock):
            inside = layers.WithAttentionWeights(layer, dtype=layer.dtype_policy, name=layer.name)
            wrappers.append(inside)
        elif isinstance(layer, keras.Model) and backbones(layer):
            inside, more = with_attention_weights(layer)
            wrappers.extend(more)
        else:
            return layer(*args, **kwargs)
        x, *weights = inside(*args, **kwargs)
        maps.extend(weights)
        return x

    if isinstance(model, keras.Sequential):
        model = keras.Model(model.inputs[0], model.outputs[0])
    copy = keras.models.clone_model(model, clone_function=lambda layer: layer, call_function=call)
    return keras.Model(copy.input, [copy.output, *maps]), wrappers


def refuse_windows(model: keras.Model) -> None:
    """Raises ValueError unless a model has blocks, all of which attend to all tokens."""
    windowed = windowed_blocks(model)
    if windowed or not any(isinstance(layer, layers.EncoderBlock) for layer in model.layers):
        state = f"where {', '.join(windowed)} attend within windows" if windowed else "with none"
        raise ValueError(
            "Attention weights need a model with EncoderBlock layers that attend to all tokens. "
            f"Received: model {model.name!r}, {state}"
        )


def windowed_blocks(model: keras.Model) -> list[str]:
    """Returns the names of the blocks that attend within windows."""
    blocks = [layer for layer in model.layers if isinstance(layer, layers.EncoderBlock)]
    return [block.name for block in blocks if block.options.window_size is not None]


def patch_grid(model: keras.Model) -> tuple[int, int]:
    """Returns the rows and columns of the patches that a model cuts its input into.

    In a hybrid, the patches are cut from the feature map of the ResNet.

    Args:
        model: A functional model with one `PatchEmbedding` layer.

    Returns:
        (rows, columns).

    Raises:
        ValueError: If the model has no `PatchEmbedding`, or several.

    Example:
        >>> patch_grid(vit_keras.models.from_variant("Ti/16", image_size=(96, 224), num_classes=10))
        (6, 14)
    """
    embedding = _embedding_of(backbone_of(model))
    return embedding.grid(embedding.input.shape[1:3])


def covered_size(model: keras.Model) -> tuple[int, int]:
    """Returns the height and width in pixels of the part of an image that patches cover."""
    model = backbone_of(model)
    height, width = (n * stride for n, stride in zip(patch_grid(model), _patch_stride(model)))
    return height, width


def _patch_stride(model) -> tuple[int, int]:
    """The height and width in pixels of a patch, which a hybrid cuts from a ResNet's map."""
    embedding = _embedding_of(model)
    sizes = (model.input_shape[1:3], embedding.input.shape[1:3], embedding.patch_size)
    height, width = (pixels // places * patch for pixels, places, patch in zip(*sizes))
    return height, width


def _embedding_of(model) -> layers.PatchEmbedding:
    embeddings = [layer for layer in model.layers if isinstance(layer, layers.PatchEmbedding)]
    if len(embeddings) != 1:
        raise ValueError(
            "The grid of patches needs a model with one PatchEmbedding layer. "
            f"Received: model {model.name!r} with {len(embeddings)} of them"
        )
    return embeddings[0]


def check_cuts_images(model: keras.Model) -> None:
    """Raises ValueError unless a model cuts its only input into patches itself."""
    begins = next((layer for layer in model.layers if layer.weights), None)
    if len(model.inputs) > 1 or not isinstance(begins, layers.PatchEmbedding):
        raise ValueError(
            "Pretext tasks, other patch sizes and images of any size need a model that cuts its "
            "only input into patches itself, as a VisionTransformer does. Received: "
            f"{model.name!r} with {len(model.inputs)} inputs, which begins with "
            f"{type(begins).__name__}"
        )


def refuse_fixed_grids(model: keras.Model, subject: str, but: tuple[type, ...]) -> None:
    """Raises ValueError if a model has layers that are made for one grid of patches.

    Args:
        model: A functional model.
        subject: What needs other grids: a plural noun for the message.
        but: The types of layers that may have a grid, since they add positions to the tokens.
    """
    fixed = [x.name for x in model.layers if x.get_config().get("grid") and type(x) not in but]
    if fixed:
        raise ValueError(
            f"{subject} need a model without layers tied to one grid of patches, such as windows "
            f"or positions in the attention. Received: {model.name!r} with {', '.join(fixed)}"
        )


def with_dynamic_positions(model, images, interpolation: str, kinds, copy_of=lambda layer: layer):
    """Calls a model's layers on other images, and interpolates positions to their grid.

    Args:
        model: A functional model.
        images: The symbolic images.
        interpolation: The rule for positions.
        kinds: The types of layers that add positions to the tokens.
        copy_of: Returns the layer to call in place of a layer of the model; by default that layer.
    """
    grid, patch_size = patch_grid(model), _embedding_of(model).patch_size

    def clone(layer):
        if type(layer) not in kinds:
            return copy_of(layer)
        options = {"name": layer.name, "dtype": layer.dtype_policy}
        before = layer.get_build_config()["input_shape"][1] - math.prod(grid)
        copy = copy_of(layer)
        return layers.AddDynamicPositions(copy, grid, patch_size, before, interpolation, **options)

    def call(layer, *args, **kwargs):
        is_dynamic = isinstance(layer, layers.AddDynamicPositions)
        return layer(args[0], images) if is_dynamic else layer(*args, **kwargs)

    options = {"clone_function": clone, "call_function": call}
    return keras.models.clone_model(model, input_tensors=images, **options)


def attention_rollout(attention: np.ndarray, heads: str = "mean") -> np.ndarray:
    """Computes how much of each input token reaches each token of the last layer.

    Attention rollout (Abnar & Zuidema, arXiv 2005.00928) joins the heads of each layer, adds the
    identity for the residual connection, scales the rows to sum to 1, and multiplies the layers.

    Args:
        attention: Attention weights `(B, L, H, N, N)` for images, layers, heads, queries and keys,
            as the model from `attention_maps` outputs them.
        heads: How to join the heads: by their "mean" or their "max".

    Returns:
        An array `(B, N, N)` whose rows sum to 1. Row q belongs to token q of the last layer.

    Raises:
        ValueError: If `heads` is neither "mean" nor "max".

    Example:
        >>> attention = attention_maps(model).predict(images)
        >>> attention_rollout(attention)[:, 0, 1:]  # from the class token to the patches
    """
    check_choice(heads, ("mean", "max"), "heads")
    joined = getattr(np, heads)(np.asarray(attention, "float64"), axis=2)  # (B, L, N, N)
    joined = joined + np.eye(joined.shape[-1])
    joined /= joined.sum(axis=-1, keepdims=True)
    flow = joined[:, 0]
    for layer in range(1, joined.shape[1]):
        flow = joined[:, layer] @ flow
    return flow


def read_out(
    weights: np.ndarray, grid: tuple[int, int], class_token: bool | None = None
) -> np.ndarray:
    """Reads from attention weights how much the classifier takes from each patch.

    The weights are the class token's row or, in a model without one, the mean of the patches' rows.

    Args:
        weights: Attention weights or a rollout, `(..., N, N)`.
        grid: The rows and columns of patches, (h, w).
        class_token: Whether the first token is a class token. None assumes so if any tokens come
            before the patches.

    Returns:
        An array `(..., h, w)`.

    Example:
        >>> weights = np.tile([0.2, 0.1, 0.3, 0.2, 0.2], (5, 1))  # a class token and 2 x 2 patches
        >>> read_out(weights, (2, 2))
        array([[0.1, 0.3],
               [0.2, 0.2]])
    """
    patches = grid[0] * grid[1]
    if class_token is None:
        class_token = weights.shape[-1] > patches
    queries = weights[..., 0, :] if class_token else weights[..., -patches:, :].mean(axis=-2)
    return queries[..., -patches:].reshape(*queries.shape[:-1], *grid)


def split_frozen(model: keras.Model) -> tuple[keras.Model, keras.Model]:
    """Splits a model before its first trainable layer.

    Args:
        model: A functional model whose layers form a chain. Its first layers are frozen.

    Returns:
        Two models: the frozen layers, from images to features, which share the weights of `model`;
        and the other layers, from features to the output, with copies of their weights.

    Raises:
        ValueError: If the first layer with weights is trainable, if no layer is trainable, or if
            the trainable layers do not form a chain.

    Example:
        ```python
        freeze(model, ["[!h]*"])
        backbone, head = models.split_frozen(model)
        head(backbone(images))  # equals model(images)
        ```
    """
    chain = layers_of(model)
    first = next((i for i, x in enumerate(chain) if x.trainable_variables), len(chain))
    frozen, others = chain[:first], chain[first:]
    is_chain = all(_follows(layer, before) for before, layer in zip(chain[first - 1 :], others))
    if not others or not any(layer.weights for layer in frozen) or not is_chain:
        state = f"{others[0].name!r} is the first trainable one" if others else "no layer trains"
        raise ValueError(
            "The first layers of the model must be frozen, and all layers from the first trainable "
            f"one on must form a chain. Received: model {model.name!r}, where {state}. Set "
            'optimizer.freeze, such as ["[!h]*"] for all layers but the head'
        )
    backbone = type(model)(model.input, frozen[-1].output, name=f"{model.name}_frozen")
    head = _copy(others, frozen[-1].output, model)
    return copy_description(backbone, model), copy_description(head, model)


def _follows(layer, before):
    try:
        return layer.input is before.output
    except (AttributeError, ValueError):  # a layer that is called several times
        return False


def _copy(layers, features, model):
    """Copies a chain of layers with their weights and trainable flags."""
    x = start = keras.Input(features.shape[1:], dtype=features.dtype, name="features")
    for layer in layers:
        copy = type(layer).from_config(layer.get_config())
        x = copy(x)
        copy.set_weights(layer.get_weights())
        if not layer.trainable:
            copy.trainable = False
    return type(model)(start, x, name=model.name)


def scale_head(model: keras.Model, scale, offset=0.0) -> keras.Model:
    """Multiplies a model's outputs by `scale` and adds `offset`, through its head's weights.

    Args:
        model: A model that ends in its linear `head`, or in the mean of `head` and `head_dist`. It
            is changed in place.
        scale: One factor, or one for each of the K outputs, `(K,)`.
        offset: One number, or one for each output.

    Returns:
        `model`.

    Raises:
        ValueError: If the model does not end in a linear layer called `head`.

    Example:
        >>> logits = model.predict(images)
        >>> np.allclose(scale_head(model, 0.5).predict(images), logits / 2, atol=1e-6)
        True
    """
    last = model.layers[-1]
    heads = [last]
    if isinstance(last, keras.layers.Average):
        heads = [layer for layer in model.layers if layer.name in ("head", "head_dist")]
    linear = keras.activations.linear
    if heads[0].name != "head" or any(getattr(h, "activation", None) is not linear for h in heads):
        raise ValueError(
            "Scaling the outputs needs a linear last layer called `head`. "
            f"Received: model {model.name!r}, which ends in {last.name!r}"
        )
    scale = np.asarray(scale, "float64")
    for head in heads:
        kernel, bias = (keras.ops.convert_to_numpy(v) for v in (head.kernel, head.bias))
        head.kernel.assign((kernel * scale).astype(kernel.dtype))
        head.bias.assign((bias * scale + offset).astype(bias.dtype))
    return model


def normalized_tokens(model: keras.Model):
    """Returns the tokens `(B, T + N, D)` after the last block, normalized if the model has a norm.

    Some models normalize only the mean of the patches.
    """
    x = blocks_of(model)[-1].layer.output
    if not has_layer(model, "encoder_norm"):
        return x
    norm = model.get_layer("encoder_norm")
    return norm.output if len(norm.output.shape) == 3 else norm(x)


ROOT_STRIDE = 4  # pixels between neighbors in a ResNet's first stage


class Block(NamedTuple):
    """A block, and its output's stride in pixels along height and width."""

    layer: keras.layers.Layer
    stride: tuple[int, int]


def blocks_of(model: keras.Model) -> list[Block]:
    """Returns the blocks of a model in order, with their strides."""
    blocks, stride = [], ROOT_STRIDE
    for layer in model.layers:
        if isinstance(layer, layers.ResNetStage):
            stride *= layer.strides
            blocks.append(Block(layer, (stride, stride)))
        elif isinstance(layer, layers.EncoderBlock):
            blocks.append(Block(layer, _patch_stride(model)))
    if not blocks:
        raise ValueError(
            "Feature maps need a model with EncoderBlock or ResNetStage layers. "
            f"Received: model {model.name!r}, which has neither"
        )
    return blocks
