"""The Vision Transformer of arXiv 2010.11929 as a functional Keras model.

Its position embeddings and their placements are in Appendix D.4.
"""

import dataclasses
import functools
from collections.abc import Callable

import keras

from vit_keras.layers import (
    ClassToken,
    DropClassToken,
    EncoderBlock,
    MAPHead,
    PatchDropout,
    PatchEmbedding,
    RegisterTokens,
    TakeClassToken,
)
from vit_keras.layers.base import default_seed, layer_options
from vit_keras.layers.common import (
    NORMALIZATIONS,
    BlockOptions,
    Dropout,
    Prefix,
    ViTOptions,
    check_choice,
    check_kept,
    check_positive,
    check_rates,
)
from vit_keras.layers.positions import ADDED, POSITION_NAMES
from vit_keras.layers.positions_in_attention import IN_ATTENTION
from vit_keras.models.architectures import VisionTransformerArchitecture, canonical
from vit_keras.models.boxes import add_boxes
from vit_keras.models.common import add_head, image_input, image_source
from vit_keras.models.image_model import ImageModel

CLASSIFIERS = ("token", "gap", "map", "gap_norm", "token_gap", "distilled")
POSITION_EMBEDDINGS = ("none", *ADDED, *IN_ATTENTION)


def VisionTransformer(
    image_size: int | tuple[int, int] | None,
    patch_size: int | tuple[int, int],
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    mlp_dim: int,
    num_classes: int | None,
    classifier: str = "token",
    representation_size: int | None = None,
    position_embedding: str = "learned",
    position_embedding_at: str = "stem",
    dropout_rate: float = 0.0,
    attention_dropout_rate: float = 0.0,
    stochastic_depth_rate: float = 0.0,
    patch_keep_rate: float = 1.0,
    gelu: str = "exact",
    layer_norm_epsilon: float = 1e-6,
    channels: int = 3,
    classifier_activation=None,
    head_bias: float = 0.0,
    rematerialize: bool = False,
    input_tensor=None,
    dtype=None,
    seed: int | None = None,
    name: str = "vision_transformer",
    **options,
) -> ImageModel:
    """Builds the Vision Transformer of arXiv 2010.11929 (Eq. 1-4), or one of its descendants.

    The model maps images `(B, H, W, C)` in [-1, 1] to logits `(B, num_classes)`.

    Args:
        image_size: Pixels, an int or (height, width); None with an `input_tensor`.
        patch_size: Pixels, an int or (height, width). It must divide `image_size`.
        hidden_size: D, the width of the tokens.
        num_layers: The number of encoder blocks.
        num_heads: The number of attention heads. It must divide `hidden_size`.
        mlp_dim: The width of the hidden layer of each MLP.
        num_classes: The number of classes; None or 0 gives features `(B, D)`.
        classifier: What the classifier reads: the class token ("token"), the mean of the patches
            ("gap"), the same mean taken before `encoder_norm` as in timm ("gap_norm"), an attention
            pool ("map"), the class token and the mean of the patches, 2D wide ("token_gap"), or
            the class token and DeiT's distillation token, each with its own head ("distilled";
            arXiv 2012.12877). "distilled" gives the mean of both heads' logits, and its features
            come from the class token.
        representation_size: The width of the pre-training layer `pre_logits` with tanh, or None for
            no such layer.
        position_embedding: "learned", "none", "learned_2d" (for columns and rows), "sincos2d"
            (fixed), "relative" (1-D, learned in the attention of each block), "rope2d" (rotary)
            (Appendix D.4, Table 8), "relative_2d" (BEiT's attention biases), or
            "learned_relative_2d" for both BEiT's biases and learned embeddings. The option `rope`
            adds rotary positions to any of them.
        position_embedding_at: Where to add embeddings: once before the blocks ("stem"), or before
            every block, with separate weights ("every") or the same weights ("shared").
        dropout_rate: The dropout rate after the embedding and after dense layers other than the
            query, key and value projections.
        attention_dropout_rate: The dropout rate of the attention weights.
        stochastic_depth_rate: The rate at which the last block drops its residual branches. The
            blocks' rates grow linearly from 0.
        patch_keep_rate: The fraction of an image's patches that a training step sees
            (`PatchDropout`).
        gelu: "exact" (erf), "tanh" (the published Flax code's approximation), or "quick"
            (OpenAI's).
        layer_norm_epsilon: The number that layer normalization adds to the variance.
        channels: The number of channels of the images.
        classifier_activation: The activation of `head`; None gives logits.
        head_bias: The initial value of the biases of `head`, whose kernel starts at zero.
        rematerialize: Whether the backward pass computes the activations of the blocks again, which
            saves memory and costs a third more work.
        input_tensor: A Keras tensor to use as the images; it has its own size.
        dtype: The dtype policy of all layers, such as "mixed_bfloat16".
        seed: Equal seeds give equal weights on every backend. None draws a seed from the generator
            that `keras.utils.set_random_seed` sets.
        name: The name of the model.
        **options: The fields of `ViTOptions`, in which other families differ: `layer_scale`,
            `num_registers`, `pre_norm`, `rope`, `qk_norm`, `mlp`, `window_size` and so on.

    Returns:
        An `ImageModel` with initial weights. Its layers are named as in the published checkpoints:
        `embedding`, `cls`, `posembed_input`, `encoderblock_{i}`, `encoder_norm`, `pre_logits` and
        `head`. The distillation token is `dist`, and its head `head_dist`.

    Raises:
        ValueError: If `patch_size` does not divide `image_size`, if `num_heads` does not divide
            `hidden_size`, or if another argument is invalid.
        TypeError: If an argument is unknown.

    Example:
        >>> model = VisionTransformer(224, 16, 768, 12, 12, 3072, num_classes=1000)  # ViT-B/16
        >>> model.count_params()
        86567656
    """
    check_choice(classifier, CLASSIFIERS, "classifier")
    design = ViTOptions(**options)
    tokens = Prefix.of(classifier, design)
    if classifier == "distilled" or design.boxes is not None:
        _check_heads(design, tokens, representation_size, classifier_activation)
    check_positive(num_layers=num_layers)
    _check_global_blocks(design.global_blocks, num_layers)
    check_positions(position_embedding, position_embedding_at)
    check_kept(patch_keep_rate=patch_keep_rate)
    if patch_keep_rate != 1:
        check_dropped_patches(position_embedding, position_embedding_at, design)
    layer = functools.partial(layer_options, default_seed() if seed is None else seed, dtype)
    mlp = {"gelu": gelu, "layer_norm_epsilon": layer_norm_epsilon}
    head = {"num_heads": num_heads, "mlp_dim": mlp_dim, **mlp}
    rates = {"dropout_rate": dropout_rate, "attention_dropout_rate": attention_dropout_rate}
    check_rates(**rates, stochastic_depth_rate=stochastic_depth_rate)
    block = {**head, **rates, "rematerialize": rematerialize}

    x = image_input(image_size, channels, input_tensor)
    stem = {"use_bias": not design.pre_norm, "crop": design.crop_to_patches}
    patches = PatchEmbedding(hidden_size, patch_size, **stem, **layer("embedding"))
    architecture = VisionTransformerArchitecture(
        *(tuple(x.shape[1:3]), patches.patch_size, x.shape[-1]),
        *(hidden_size, num_layers, num_heads, mlp_dim, num_classes or None),
        *(classifier, representation_size, gelu, layer_norm_epsilon),
        position_embedding=position_embedding,
        position_embedding_at=position_embedding_at,
        options=design,
    )
    grid = patches.grid(x.shape[1:3])
    if (relative := position_embedding.removeprefix("learned_")) in IN_ATTENTION:
        block |= {"position_embedding": relative, "grid": grid}
    elif design.rope is not None or design.window_size is not None:
        block["grid"] = grid
    positions = added_positions(position_embedding, position_embedding_at, grid, num_layers, layer)
    x = add_prefix(patches(x), tokens, design.position_cover, positions[0], layer)
    x = Dropout(dropout_rate, **layer("posembed_dropout"))(x)
    if patch_keep_rate != 1:
        x = PatchDropout(patch_keep_rate, tokens.count, **layer("patch_dropout"))(x)
    norm: Callable = functools.partial(NORMALIZATIONS[design.norm], layer_norm_epsilon, dtype=dtype)
    x = norm("pre_norm")(x) if design.pre_norm else x
    x = _encode(x, positions, stochastic_depth_rate, block, design, layer)
    if design.boxes is not None and num_classes:
        outputs = _find(x, num_classes, tokens, grid, norm, design, layer)
    else:
        vectors = read_vectors(x, classifier, tokens, norm, head, design, layer)
        bias = head_bias if design.head_use_bias else None
        sizes = num_classes, representation_size
        outputs = _classify(vectors, *sizes, classifier_activation, bias, layer)
    model = ImageModel(image_source(x), outputs, name=name)
    model.architecture = canonical(architecture)
    return model


def _classify(vectors, num_classes, representation_size, activation, bias, layer):
    """Adds the classifier, or the mean of two."""
    x, *dist = vectors
    x = add_head(x, num_classes, representation_size, activation, layer, bias)
    if dist and num_classes:
        others = add_head(dist[0], num_classes, None, None, layer, bias, name="head_dist")
        x = keras.layers.Average(dtype=others.dtype, name="logits")([x, others])
    return x


def _check_global_blocks(indices, num_layers):
    if beyond := [index for index in indices if index >= num_layers]:
        raise ValueError(
            f"`global_blocks` must be indices from 0 to {num_layers - 1}, since the model has "
            f"num_layers={num_layers}. Received: {', '.join(map(str, beyond))}"
        )


def _check_heads(design, tokens, representation_size, classifier_activation):
    if str(design.boxes).startswith("texts") and "cls" not in tokens.names:
        raise ValueError(
            f"`boxes` {design.boxes!r} merge patches with the class token. Received: a model "
            "without one; pass `class_token=True`"
        )
    if representation_size is not None or classifier_activation is not None:
        raise ValueError(
            "The heads of `classifier` 'distilled' and of `boxes` read their tokens directly and "
            "give logits, so `representation_size` and `classifier_activation` must be None. "
            f"Received: representation_size={representation_size}, "
            f"classifier_activation={classifier_activation!r}"
        )


def _encode(x, positions, stochastic_depth_rate, block, design, layer):
    """Applies the blocks (Eq. 2 and 3), one for each entry of `positions`.

    An entry is the layer that adds to the block's input, or None. The first one is already applied.
    """
    options = without_windows = BlockOptions.of(design)
    if design.global_blocks:
        without_windows = dataclasses.replace(options, window_size=None)
    for i, add in enumerate(positions):
        x = x if add is None or i == 0 else add(x)
        rate = stochastic_depth_rate * i / max(len(positions) - 1, 1)
        of_block = without_windows if i in design.global_blocks else options
        block |= {"options": of_block, "stochastic_depth_rate": rate}
        x = EncoderBlock(**block, **layer(f"encoderblock_{i}"))(x)
    return x


def _find(x, num_classes, tokens, grid, norm, design, layer):
    """Normalizes the tokens, and adds the heads of boxes that read registers or patches."""
    place = (tokens.count, None)
    if design.boxes == "tokens":
        place = (len(tokens.names), tokens.num_registers)
    x = norm("encoder_norm")(x) if design.final_norm else x
    return add_boxes(x, design.boxes, num_classes, place, grid, norm, layer)


def check_positions(kind: str, place: str) -> None:
    """Raises ValueError for an unknown kind or placement, or for an incompatible pair."""
    check_choice(kind, POSITION_EMBEDDINGS, "position_embedding")
    check_choice(place, POSITION_NAMES, "position_embedding_at")
    if (kind not in ADDED or kind == "learned_relative_2d") and place != "stem":
        raise ValueError(
            "`position_embedding_at` must be 'stem' unless position embeddings are added to the "
            f"tokens, as {', '.join(map(repr, ADDED))} are; the others act in the attention "
            "of every block. "
            f"Received: position_embedding={kind!r}, position_embedding_at={place!r}"
        )


def check_dropped_patches(kind: str, place: str, options: BlockOptions) -> None:
    """Raises ValueError if dropping patches would shift positions or break windows."""
    rope, window_size, boxes = options.rope, options.window_size, getattr(options, "boxes", None)
    if boxes not in (None, "tokens"):
        raise ValueError(
            "`patch_keep_rate` below 1 drops patches that may have boxes, so `boxes` must be "
            f"None or 'tokens'. Received: boxes={boxes!r}"
        )
    if window_size is not None:
        raise ValueError(
            "`patch_keep_rate` below 1 drops patches from the windows, so `window_size` must be "
            f"None. Received: window_size={window_size}"
        )
    if kind.removeprefix("learned_") in IN_ATTENTION or rope is not None or place != "stem":
        raise ValueError(
            "`patch_keep_rate` below 1 drops tokens after the position embeddings, which must "
            "therefore be added once, before the blocks. "
            f"Received: position_embedding={kind!r}, position_embedding_at={place!r}, rope={rope}"
        )


def added_positions(kind, place, grid, num_layers, layer) -> list:
    """Returns, for each block, the layer that adds to its input `(B, N, D)`, or None."""
    if kind not in ADDED:
        return [None] * num_layers
    numbers = range(num_layers if place == "every" else 1)
    layers = [ADDED[kind](grid=grid, **layer(POSITION_NAMES[place].format(i))) for i in numbers]
    if place == "shared":
        return layers * num_layers
    return layers + [None] * (num_layers - len(layers))


def add_prefix(x, prefix: Prefix, cover: str, positions, layer):
    """Adds the prefix and positions to patches (Eq. 1).

    Args:
        x: The patches `(B, N, D)`.
        prefix: The tokens to put before them.
        cover: `ViTOptions.position_cover`.
        positions: The layer that adds positions, or None.
        layer: A function that takes a name and returns the arguments of the layer with this name.

    Returns:
        The tokens `(B, prefix.count + N, D)`.
    """
    add = (lambda x: x) if positions is None else positions
    registers = (lambda x: x) if not prefix.num_registers else _registers(prefix, cover, layer)
    if cover == "patches":
        return _single_tokens(registers(add(x)), prefix, layer)
    if cover == "class":
        return registers(add(_single_tokens(x, prefix, layer)))
    return add(_single_tokens(registers(x), prefix, layer))


def _registers(prefix, cover, layer):
    after = len(prefix.names) if cover == "class" else 0
    return RegisterTokens(prefix.num_registers, after, **layer("registers"))


def _single_tokens(x, prefix, layer):
    for name in reversed(prefix.names):
        x = ClassToken(dtype=layer(name)["dtype"], name=name)(x)
    return x


def read_vectors(
    x, classifier: str, prefix: Prefix, norm: Callable, head: dict, options: ViTOptions, layer
) -> list:
    """Normalizes the tokens and reads vectors for the heads.

    Args:
        x: The tokens `(B, T + N, D)` after the last block.
        classifier: As in `VisionTransformer`.
        prefix: The T tokens before the patches.
        norm: A function that takes a name and returns the normalization with this name.
        head: The arguments of `MAPHead`.
        options: The model's options.
        layer: A function that takes a name and returns the arguments of the layer with this name.

    Returns:
        `[(B, D)]`, or two of them for "distilled"; `[(B, 2D)]` for "token_gap".
    """
    dtype = layer("encoder_norm")["dtype"]
    norm = norm("encoder_norm") if options.final_norm else lambda x: x
    if classifier == "gap_norm":
        return [norm(_mean(_patches(x, prefix, dtype), dtype))]
    x = norm(x)
    if classifier == "gap":
        return [_mean(_patches(x, prefix, dtype), dtype)]
    if classifier == "map":
        sizes = {
            "num_heads": options.map_heads or head["num_heads"],
            "mlp_dim": options.map_mlp_dim or head["mlp_dim"],
        }
        x = x if options.pool_all_tokens else _patches(x, prefix, dtype)
        return [MAPHead(**{**head, **sizes}, **layer("MAPHead_0"))(x)]
    read = {"distilled": ("token", "dist_token")}.get(classifier, ("token",))
    vectors = [TakeClassToken(i, dtype=dtype, name=name)(x) for i, name in enumerate(read)]
    if classifier == "token_gap":
        vectors.append(_mean(_patches(x, prefix, dtype), dtype))
        return [keras.layers.Concatenate(dtype=dtype, name="token_gap")(vectors)]
    return vectors


def _patches(x, prefix, dtype):
    if not prefix.count:
        return x
    return DropClassToken(prefix.count, dtype=dtype, name="patch_tokens")(x)


def _mean(x, dtype):
    return keras.layers.GlobalAveragePooling1D(dtype=dtype, name="gap")(x)
