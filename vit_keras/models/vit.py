"""The Vision Transformer (arXiv 2010.11929); Appendix D.4 describes its position embeddings."""

import dataclasses
import itertools
from typing import Any

import keras

from vit_keras import layers
from vit_keras.layers import common
from vit_keras.layers.base import LayerArguments
from vit_keras.layers.positions import ADDED, POSITION_NAMES
from vit_keras.layers.positions_in_attention import IN_ATTENTION
from vit_keras.models import architectures
from vit_keras.models.common import add_head, image_input, image_source
from vit_keras.models.dense_tasks import add_boxes
from vit_keras.models.image_model import ImageModel
from vit_keras.support.checks import check_types

MOVABLE = ("learned", "learned_2d", "sincos2d")  # embeddings that may be added before every block


def VisionTransformer(
    image_size: int | tuple[int, int] | None,
    patch_size: int | tuple[int, int],
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    mlp_dim: int,
    num_classes: int | None,
    classifier: architectures.Classifier = "token",
    representation_size: int | None = None,
    position_embedding: architectures.Positions = "learned",
    position_embedding_at: architectures.Place = "stem",
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
    """Builds the Vision Transformer of arXiv 2010.11929 (Eqs. 1-4), or one of its descendants.

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
        input_tensor: A Keras tensor to use as the images; it sets the image size.
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
    x = image_input(image_size, channels, input_tensor)
    arch = architectures.VisionTransformerArchitecture(
        image_size=tuple(x.shape[1:3]),
        patch_size=common.pair(patch_size, "patch_size"),
        channels=x.shape[-1],
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        mlp_dim=mlp_dim,
        num_classes=num_classes or None,
        classifier=classifier,
        representation_size=representation_size,
        gelu=gelu,
        layer_norm_epsilon=layer_norm_epsilon,
        position_embedding=position_embedding,
        position_embedding_at=position_embedding_at,
        options=common.ViTOptions(**options),
    )
    _check(arch, classifier_activation, patch_keep_rate)
    rates = {"dropout_rate": dropout_rate, "attention_dropout_rate": attention_dropout_rate}
    layer = LayerArguments(seed, dtype)
    design = arch.options
    kind: Any = common.NORMALIZATIONS[design.norm]
    norm = lambda name: kind(epsilon=layer_norm_epsilon, **layer.unseeded(name))

    x, positions, grid = _embed(x, arch, dropout_rate, patch_keep_rate, layer)
    x = norm("pre_norm")(x) if design.pre_norm else x
    block = {**_numbers(arch), **rates, "rematerialize": rematerialize}
    x = _encode(x, arch, grid, positions, stochastic_depth_rate, block, layer)
    if design.boxes is not None and num_classes:
        outputs = _find(x, arch, grid, norm, layer)
    else:
        bias = head_bias if design.head_use_bias else None
        vectors = _read_vectors(x, arch, norm, layer)
        outputs = _classify(vectors, num_classes, arch, classifier_activation, bias, layer)
    model = ImageModel(image_source(x), outputs, name=name)
    model.architecture = architectures.canonical(arch)
    return model


def _check(arch, classifier_activation, patch_keep_rate):
    """Raises ValueError for an unknown argument, or for arguments that do not fit together."""
    check_types(arch)
    common.check_positive(num_layers=arch.num_layers)
    design, kind, place = arch.options, arch.position_embedding, arch.position_embedding_at
    if kind not in MOVABLE and place != "stem":
        raise ValueError(
            "`position_embedding_at` must be 'stem' unless `position_embedding` is one of "
            f"{', '.join(map(repr, MOVABLE))}. "
            f"Received: position_embedding={kind!r}, position_embedding_at={place!r}"
        )
    if beyond := sorted({*design.global_blocks} - {*range(arch.num_layers)}):
        raise ValueError(
            f"`global_blocks` must be indices from 0 to {arch.num_layers - 1}, since the model has "
            f"num_layers={arch.num_layers}. Received: {', '.join(map(str, beyond))}"
        )
    if str(design.boxes).startswith("texts") and "cls" not in arch.prefix.names:
        raise ValueError(
            f"boxes={design.boxes!r} needs a class token to merge with the patches. Received: a "
            "model without one; pass `class_token=True`"
        )
    reads_directly = arch.classifier == "distilled" or design.boxes is not None
    if reads_directly and not (arch.representation_size is classifier_activation is None):
        raise ValueError(
            "The heads of `classifier` 'distilled' and of `boxes` read their tokens directly and "
            "give logits, so `representation_size` and `classifier_activation` must be None. "
            f"Received: representation_size={arch.representation_size}, "
            f"classifier_activation={classifier_activation!r}"
        )
    in_attention = kind.removeprefix("learned_") in IN_ATTENTION or design.rope is not None
    fits = design.boxes in (None, "tokens") and design.window_size is None
    if patch_keep_rate != 1 and (in_attention or place != "stem" or not fits):
        raise ValueError(
            "With `patch_keep_rate` below 1, positions must be added once, before the blocks, "
            "`window_size` must be None, and `boxes` None or 'tokens'. Received: positions "
            f"{kind!r} at {place!r}, {design}"
        )


def _numbers(arch):
    """The arguments that blocks and the attention pool share."""
    names = ("num_heads", "mlp_dim", "gelu", "layer_norm_epsilon")
    return {name: getattr(arch, name) for name in names}


def _embed(x, arch, dropout_rate, patch_keep_rate, layer):
    """Cuts images `(B, H, W, C)` into tokens `(B, T + N, D)`, with positions (Eq. 1).

    Returns:
        The tokens; the layers of `_positions`, the first of which is applied; and the rows and
        columns of patches.
    """
    stem = {"use_bias": not arch.options.pre_norm, "crop": arch.options.crop_to_patches}
    patches = layers.PatchEmbedding(arch.hidden_size, arch.patch_size, **stem, **layer("embedding"))
    grid = patches.grid(x.shape[1:3], known=arch.position_embedding != "none")
    positions = _positions(arch, grid, layer)
    x = _with_prefix(patches(x), arch, positions[0], layer)
    x = common.Dropout(dropout_rate, **layer("posembed_dropout"))(x)
    if patch_keep_rate != 1:
        x = layers.PatchDropout(patch_keep_rate, arch.prefix.count, **layer("patch_dropout"))(x)
    return x, positions, grid


def _positions(arch, grid, layer) -> list:
    """Returns, for each block, the layer that adds to its input `(B, N, D)`, or None."""
    if arch.position_embedding not in ADDED:
        return [None] * arch.num_layers
    make, place = ADDED[arch.position_embedding], arch.position_embedding_at
    numbers = range(arch.num_layers if place == "every" else 1)
    layers = [make(grid=grid, **layer(POSITION_NAMES[place].format(i))) for i in numbers]
    if place == "shared":
        return layers * arch.num_layers
    return layers + [None] * (arch.num_layers - len(layers))


def _with_prefix(x, arch, positions, layer):
    """Adds the tokens before the patches, and positions (Eq. 1): `(B, N, D)` -> `(B, T + N, D)`."""
    prefix, cover = arch.prefix, arch.options.position_cover
    after = len(prefix.names) if cover == "class" else 0
    added = [] if positions is None else [positions]
    single = [layers.ClassToken(**layer.unseeded(name)) for name in reversed(prefix.names)]
    registers = []
    if prefix.num_registers:
        registers.append(layers.RegisterTokens(prefix.num_registers, after, **layer("registers")))
    orders = {
        "all": (registers, single, added),
        "class": (single, added, registers),
        "patches": (added, registers, single),
    }
    for add in itertools.chain(*orders[cover]):
        x = add(x)
    return x


def _encode(x, arch, grid, positions, stochastic_depth_rate, block, layer):
    """Applies the blocks (Eqs. 2 and 3), one for each entry of `positions`.

    An entry is the layer that adds positions to its block's input, or None. The first one has
    already been applied.
    """
    options = common.BlockOptions.of(arch.options)
    without_windows = dataclasses.replace(options, window_size=None)
    if (relative := arch.position_embedding.removeprefix("learned_")) in IN_ATTENTION:
        block |= {"position_embedding": relative, "grid": grid}
    elif options.rope is not None or options.window_size is not None:
        block["grid"] = grid
    for i, add in enumerate(positions):
        x = x if add is None or i == 0 else add(x)
        rate = stochastic_depth_rate * i / max(len(positions) - 1, 1)
        of_block = without_windows if i in arch.options.global_blocks else options
        block |= {"options": of_block, "stochastic_depth_rate": rate}
        x = layers.EncoderBlock(**block, **layer(f"encoderblock_{i}"))(x)
    return x


def _find(x, arch, grid, norm, layer):
    """Normalizes the tokens, and adds the heads of boxes that read registers or patches."""
    place, boxes = (arch.prefix.count, None), arch.options.boxes
    if boxes == "tokens":
        place = (len(arch.prefix.names), arch.prefix.num_registers)
    x = norm("encoder_norm")(x) if arch.options.final_norm else x
    return add_boxes(x, boxes, arch.num_classes, place, grid, norm, layer)


def _classify(vectors, num_classes, arch, activation, bias, layer):
    """Adds the classifier, or the mean of two."""
    x, *dist = vectors
    x = add_head(x, num_classes, arch.representation_size, activation, layer, bias)
    if dist and num_classes:
        others = add_head(dist[0], num_classes, None, None, layer, bias, name="head_dist")
        x = keras.layers.Average(dtype=others.dtype, name="logits")([x, others])
    return x


def _read_vectors(x, arch, norm, layer) -> list:
    """Normalizes tokens `(B, T + N, D)` and reads vectors for the heads.

    Returns:
        `[(B, D)]`, or two of them for "distilled"; `[(B, 2D)]` for "token_gap".
    """
    design, classifier = arch.options, arch.classifier
    norm = norm("encoder_norm") if design.final_norm else lambda x: x
    patches = lambda x: x
    if arch.prefix.count:
        patches = layers.DropClassToken(arch.prefix.count, **layer.unseeded("patch_tokens"))
    mean = keras.layers.GlobalAveragePooling1D("channels_last", **layer.unseeded("gap"))
    if classifier == "gap_norm":
        return [norm(mean(patches(x)))]
    x = norm(x)
    if classifier == "gap":
        return [mean(patches(x))]
    if classifier == "map":
        head, sizes = _numbers(arch), {"num_heads": design.map_heads, "mlp_dim": design.map_mlp_dim}
        head |= {name: size for name, size in sizes.items() if size}
        x = x if design.pool_all_tokens else patches(x)
        return [layers.MAPHead(**head, **layer("MAPHead_0"))(x)]
    read = {"distilled": ("token", "dist_token")}.get(classifier, ("token",))
    vectors = [layers.TakeClassToken(i, **layer.unseeded(name))(x) for i, name in enumerate(read)]
    if classifier == "token_gap":
        vectors.append(mean(patches(x)))
        return [keras.layers.Concatenate(**layer.unseeded("token_gap"))(vectors)]
    return vectors
