"""Feature maps of a model's blocks, and models that assign classes to pixels or find objects."""

import functools
from collections.abc import Sequence

import keras

from vit_keras.layers import DropClassToken, PatchBoxes, PatchDropout, PatchMap, RegisterTokens
from vit_keras.layers.base import LayerArguments
from vit_keras.layers.common import LayerNormalization, check_choice, check_positive
from vit_keras.models import surgery
from vit_keras.models.architectures import (
    VisionTransformerArchitecture,
    positions_of,
    with_boxes,
)
from vit_keras.models.common import add_head, dense, image_source, variable_dtype, with_kernel
from vit_keras.models.description import (
    copy_description,
    count_prefix,
    has_layer,
    uncropped,
    with_outputs,
)
from vit_keras.models.image_model import ImageModel
from vit_keras.support.tasks import Task


def feature_pyramid(
    model: keras.Model,
    levels: Sequence[int] | None = None,
    *,
    blocks: int | Sequence[int] | None = None,
    norm: bool = False,
) -> ImageModel:
    """Makes a model that outputs feature maps `(B, h, w, D)` of its blocks.

    A Vision Transformer has one stride, the patch size. Maps at other levels are resampled without
    weights: bilinear interpolation makes finer maps, and max pooling makes coarser ones. The simple
    feature pyramid of ViTDet (arXiv 2203.16527) also resamples the last map, but uses learned
    layers for the finer levels. A detector can add such layers after these maps.

    Args:
        model: A functional model with `EncoderBlock` layers, `ResNetStage` layers, or both.
        levels: A stride in pixels for each map, such as (4, 8, 16, 32). Each must be a whole
            multiple or a whole fraction of its block's stride. None keeps the blocks' own strides.
        blocks: The index of a block for each map, or one for all; -1 is the last. The stages of a
            ResNet or of a hybrid's stem count as blocks. None uses, for each level, the last block
            with this stride, or else the last block.
        norm: Whether `encoder_norm` normalizes the tokens of the maps, as in timm.

    Returns:
        A model that shares the weights of `model` and maps its input to a list of maps, one for
        each level or block, or to a single map if there is only one. Class tokens are left out.
        `with_image_size` adapts it to another image size; a ResNet with `image_size=None` takes any
        size.

    Raises:
        ValueError: If the model has no blocks or no `encoder_norm`, if `levels` and `blocks` have
            different lengths, or if a level does not suit its block.
        IndexError: If the model has no such block.

    Example:
        >>> maps = feature_pyramid(model, levels=(4, 8, 16, 32)).predict(images)  # ViT-B/16 at 224
        >>> [x.shape for x in maps]
        [(8, 56, 56, 768), (8, 28, 28, 768), (8, 14, 14, 768), (8, 7, 7, 768)]
        >>> feature_pyramid(model, blocks=(2, 5, 8, 11)).predict(images)[0].shape
        (8, 14, 14, 768)
    """
    model = surgery.backbone_of(model)
    available = surgery.blocks_of(model)
    if blocks is None:
        at = {block.stride: block for block in available}  # the last one with each stride
        chosen = [at.get((level, level), available[-1]) for level in levels or (0,)]
    else:
        indices = [blocks] if isinstance(blocks, int) else list(blocks)
        chosen = [available[i] for i in indices]
        if len(chosen) == 1 and levels is not None:
            chosen *= len(levels)
    resized = levels if levels is not None else [None] * len(chosen)
    by_block = {block: map_of(model, block, norm) for block in dict.fromkeys(chosen)}
    maps = [
        _at_level(by_block[block], block, level, place)
        for place, (block, level) in enumerate(zip(chosen, resized, strict=True))
    ]
    return with_outputs(model, maps if len(maps) > 1 else maps[0], f"{model.name}_pyramid")


def map_of(model: keras.Model, block: surgery.Block, norm: bool):
    """Returns the output of a block as a map `(B, h, w, D)`."""
    x, dtype = block.layer.output, block.layer.dtype_policy
    if len(x.shape) == 4:
        return x
    if norm:
        x = model.get_layer("encoder_norm")(x)
    name = f"{block.layer.name}_map"
    return PatchMap(surgery.patch_grid(model), dtype=dtype, name=name)(x)


def _at_level(x, block, level, place):
    """Resamples a map `(B, h, w, D)` to a stride of `level` pixels along both axes."""
    if level is None or block.stride == (level, level):
        return x
    if level < 1 or any(stride % level and level % stride for stride in block.stride):
        raise ValueError(
            "`levels` must be strides in pixels, each its block's stride multiplied or divided by "
            f"a whole number. Received: {level} for {block.layer.name!r} with stride {block.stride}"
        )
    options = {"data_format": "channels_last", "dtype": block.layer.dtype_policy}
    finer = tuple(max(stride // level, 1) for stride in block.stride)
    coarser = tuple(max(level // stride, 1) for stride in block.stride)
    name = f"{block.layer.name}_stride_{level}_{place}"
    if finer != (1, 1):
        up = {"interpolation": "bilinear", "name": f"{name}_up", **options}
        x = keras.layers.UpSampling2D(finer, **up)(x)
    if coarser != (1, 1):
        x = keras.layers.MaxPooling2D(coarser, padding="same", name=f"{name}_pool", **options)(x)
    return x


MAPS = 4  # the number of blocks that the multi-level decoder reads
DOUBLINGS = 2  # of its resolution, by learned layers
EPSILON = 1e-6


def segmenter(
    model: keras.Model,
    num_classes: int,
    decoder: str = "multilevel",
    width: int = 64,
    head_bias: float = 0.0,
    seed: int | None = None,
    name: str | None = None,
) -> ImageModel:
    """Builds a model for semantic segmentation from an encoder.

    The model maps images `(B, H, W, C)` to the logits of each pixel, `(B, H, W, num_classes)`. The
    layer `head` starts at zero, and its map is interpolated bilinearly to the size of the images.

    Args:
        model: An encoder of this package with a known image size, such as a `VisionTransformer`
            with or without a head. Layers after its last block, except the norm, are left out.
        num_classes: The number of classes.
        decoder: "linear" is one dense layer on the normalized last map, as in Segmenter's linear
            decoder (arXiv 2105.05633). "multilevel" adds up projections of four blocks, evenly
            spaced over the depth, as SETR's MLA (arXiv 2012.15840) does, and doubles the map's
            resolution twice with transposed convolutions, as ViTDet (arXiv 2203.16527) does.
        width: The width of the multi-level decoder.
        head_bias: The initial value of the biases of `head`.
        seed: The seed of the new layers. Equal seeds give equal weights on every backend.
        name: The name of the model; None keeps the name of `model`.

    Returns:
        An `ImageModel` that shares the encoder's weights. Its task is masks. Its preprocessing is
        the encoder's, but without a central crop, so it sees whole pictures. `with_image_size`
        adapts it to another image size.

    Raises:
        ValueError: If the model has no blocks, if an argument is invalid, or if the image size is
            unknown or not a multiple of the last block's stride.

    Example:
        >>> encoder = from_variant("S/16", image_size=512, num_classes=None)
        >>> segmenter(encoder, num_classes=21).output_shape
        (None, 512, 512, 21)
    """
    check_choice(decoder, DECODERS, "decoder")
    check_positive(num_classes=num_classes)
    blocks, size = surgery.blocks_of(model), model.input_shape[1:3]
    stride = blocks[-1].stride
    if None in size or any(side % step for side, step in zip(size, stride)):
        raise ValueError(
            "A segmenter's images must have sides that are multiples of its last block's stride, "
            f"{stride[0]}x{stride[1]} pixels, so that the map covers them. Received: model "
            f"{model.name!r} for images of {size[0]}x{size[1]} pixels"
        )
    layer = LayerArguments(seed, blocks[-1].layer.dtype_policy)
    x = DECODERS[decoder](model, blocks, width, layer)
    x = add_head(x, num_classes, None, None, layer, head_bias)  # (B, h, w, K)
    factors = tuple(side // places for side, places in zip(size, x.shape[1:3]))
    if factors != (1, 1):
        up = {"interpolation": "bilinear", "data_format": "channels_last", "dtype": x.dtype}
        x = keras.layers.UpSampling2D(factors, **up, name="logits")(x)
    changes = {"preprocessing": uncropped(model), "task": Task("masks"), "class_names": None}
    return with_outputs(model, x, name, **changes)


def _linear(model, blocks, width, layer):
    return map_of(model, blocks[-1], norm=has_layer(model, "encoder_norm"))


def _multilevel(model, blocks, width, layer):
    """The sum of projected maps `(B, h, w, width)`, upsampled by learned layers."""
    alike = [block for block in blocks if block.stride == blocks[-1].stride]
    # The last block of each of `MAPS` equal ranges of the depth: 2, 5, 8 and 11 of 12 blocks.
    evenly = [round((part + 1) * len(alike) / MAPS) - 1 for part in range(MAPS)]
    chosen = alike if len(alike) <= MAPS else [alike[i] for i in evenly]
    maps = []
    for number, block in enumerate(chosen):
        x = _norm(map_of(model, block, norm=False), f"decoder_norm_{number}", layer)
        maps.append(dense(x, width, layer(f"decoder_projection_{number}")))
    x = maps[0]
    if len(maps) > 1:
        x = keras.layers.Add(**layer.unseeded("decoder_sum"))(maps)
    doublings = [n for n in range(DOUBLINGS + 1) if not any(s % 2**n for s in blocks[-1].stride)]
    for number in range(doublings[-1]):
        x = _doubled(x, width, number, layer)
    return x


def _doubled(x, width, number, layer):
    """Doubles the resolution with a transposed 2x2 convolution, followed by a 3x3 convolution."""
    common = {"data_format": "channels_last"}
    up = with_kernel(layer(f"decoder_up_{number}"), x.shape[-1], width)
    x = keras.layers.Conv2DTranspose(width, 2, 2, **common, **up)(x)
    x = _relu(_norm(x, f"decoder_up_norm_{number}", layer), f"decoder_up_relu_{number}", layer)
    mix = with_kernel(layer(f"decoder_mix_{number}"), 9 * width, 9 * width)
    x = keras.layers.Conv2D(width, 3, padding="same", **common, **mix)(x)
    return _relu(_norm(x, f"decoder_mix_norm_{number}", layer), f"decoder_mix_relu_{number}", layer)


def _norm(x, name, layer):
    return LayerNormalization(epsilon=EPSILON, **layer.unseeded(name))(x)


def _relu(x, name, layer):
    return keras.layers.ReLU(**layer.unseeded(name))(x)


DECODERS = {"linear": _linear, "multilevel": _multilevel}


DEPTH = 3  # dense layers of an MLP
STEM = "posembed_dropout"  # the layer after which tokens are complete


def add_boxes(x, kind: str, num_classes: int, place, grid, norm, layer) -> dict:
    """Adds the heads of boxes and classes to tokens.

    Args:
        x: The normalized tokens `(B, T + N, D)`.
        kind: `ViTOptions.boxes`.
        num_classes: K; for kinds with texts, the width E of the text embeddings.
        place: The number of tokens before those that the heads read, and the number that they read;
            None for all.
        grid: The rows and columns of patches.
        norm: A function that takes a name and returns the normalization with this name.
        layer: A function that takes a name and returns the arguments of the layer with this name.

    Returns:
        The outputs of the model, by name.
    """
    of_texts = kind.startswith("texts")
    read = "detection_tokens" if kind == "tokens" else "patch_tokens"
    tokens, x = x, DropClassToken(*place, **layer.unseeded(read))(x)
    if of_texts:
        token = DropClassToken(0, keep=1, **layer.unseeded("class_token"))(tokens)
        x = norm("head_norm")(keras.layers.Multiply(**layer.unseeded("merged"))([x, token]))
    mlp = functools.partial(_mlp, x, "gelu" if of_texts else "relu", layer)
    named = {"dtype": variable_dtype(layer.dtype), "name": "boxes"}
    place_boxes = PatchBoxes(grid, **named)
    if kind == "tokens":
        place_boxes = keras.layers.Activation("sigmoid", **named)
    boxes = place_boxes(mlp("head_boxes", 4))
    if not of_texts:
        return {"logits": mlp("head", num_classes + 1), "boxes": boxes}
    unit = keras.layers.UnitNormalization(**named | {"name": "embeddings"})
    above_zero = keras.layers.Rescaling(1.0, 1.0, **named | {"name": "scale"})
    outputs = {
        "embeddings": unit(_dense(x, "head", num_classes, layer)),
        "shift": _dense(x, "head_shift", 1, layer),
        "scale": above_zero(_dense(x, "head_scale", 1, layer, "elu")),
        "boxes": boxes,
    }
    if kind == "texts_objectness":
        flat = keras.layers.Reshape((-1,), **named | {"name": "objectness"})
        outputs["objectness"] = flat(mlp("head_objectness", 1))
    return outputs


def _mlp(x, activation, layer, name, units):
    width = x.shape[-1]
    for i in range(DEPTH - 1):
        x = dense(x, width, layer(f"{name}_mlp_{i}"), activation)
    return _dense(x, name, units, layer)


def _dense(x, name, units, layer, activation=None):
    """A layer that computes in the type of its variables; the classifier starts at zero."""
    changes = {"kernel_initializer": "zeros"} if name == "head" else {}
    dtype = variable_dtype(layer.dtype)
    return dense(x, units, layer(name), activation, dtype=dtype, **changes)


def detector(
    model: keras.Model,
    num_classes: int,
    head: str = "tokens",
    num_tokens: int = 100,
    seed: int | None = None,
    name: str | None = None,
) -> ImageModel:
    """Builds a model that finds objects from a backbone.

    The model maps images `(B, H, W, C)` to a dictionary: "logits" `(B, T, num_classes + 1)`, whose
    last column means no object, and "boxes" `(B, T, 4)`: center x, center y, width and height as
    fractions of the image's sides, in 0..1. Both come from MLPs of three layers on T normalized
    tokens (YOLOS, arXiv 2106.00666). The layer `head` of the classes starts at zero.

    Args:
        model: A backbone of this package with a known image size, such as a `VisionTransformer`
            with or without a head. Layers after its last block, except the norm, are left out, and
            so is `PatchDropout`.
        num_classes: The number of classes.
        head: "tokens" adds learned detection tokens, which the MLPs read, before the blocks, as in
            YOLOS. "patches" reads the T patches, whose boxes start at their places, as in OWL-ViT
            (arXiv 2205.06230).
        num_tokens: T for "tokens", the largest number of objects in an image.
        seed: The seed of the new layers. Equal seeds give equal weights on every backend.
        name: The name of the model; None keeps the name of `model`.

    Returns:
        An `ImageModel` with copies of the backbone's weights. `with_image_size` adapts it to
        another image size.

    Raises:
        ValueError: If the model has no encoder blocks or an argument is invalid; or with "tokens",
            if learned positions belong to all tokens of every block, as in BEiT.

    Example:
        >>> backbone = from_variant("S/16", image_size=(512, 864), num_classes=None)
        >>> outputs = detector(backbone, num_classes=80).output
        >>> outputs["logits"].shape, outputs["boxes"].shape
        ((None, 100, 81), (None, 100, 4))
    """
    check_choice(head, ("tokens", "patches"), "head")
    check_positive(num_classes=num_classes)
    name, model = name or model.name, surgery.backbone_of(model)
    grid, block = surgery.patch_grid(model), surgery.blocks_of(model)[-1].layer
    place = (count_prefix(model), num_tokens if head == "tokens" else None)
    kind, at = positions_of(model)
    if head == "tokens" and (at != "stem" or kind.removeprefix("learned_").startswith("relative")):
        raise ValueError(
            "Detection tokens need positions that are added once before the blocks, or rotary "
            f"ones. For other models, use head='patches'. Received: model {model.name!r} with "
            f"position_embedding={kind!r}, position_embedding_at={at!r}"
        )
    layer = LayerArguments(seed, block.dtype_policy)
    x = _trunk(model, place, layer)
    norm = lambda name: LayerNormalization(epsilon=block.layer_norm_epsilon, **layer.unseeded(name))
    outputs = add_boxes(x, head, num_classes, place, grid, norm, layer)
    made = copy_description(ImageModel(image_source(x), outputs, name=name), model)
    made.class_names = None
    if isinstance(made.architecture, VisionTransformerArchitecture):
        made.architecture = with_boxes(made.architecture, head, num_classes, num_tokens)
    return made


def with_joined_boxes(model: keras.Model) -> ImageModel:
    """Joins the outputs of a detector, so that one loss reads both.

    Args:
        model: A model that returns "logits" `(B, T, K + 1)` and "boxes" `(B, T, 4)`, such as one
            from `models.detector`.

    Returns:
        A model that shares the weights of `model`, with the output `(B, T, K + 1 + 4)`. Its task is
        boxes, and its preprocessing has no central crop, so it sees whole pictures.

    Example:
        >>> base = VisionTransformer(32, 16, 24, 2, 3, 48, num_classes=4)
        >>> model = detector(base, num_classes=2, num_tokens=5)
        >>> with_joined_boxes(model).output_shape
        (None, 5, 7)
    """
    outputs = [model.output["logits"], model.output["boxes"]]
    joined = keras.layers.Concatenate(dtype="float32", name="joined")(outputs)
    return with_outputs(model, joined, preprocessing=uncropped(model), task=Task("boxes"))


def with_one_output(model: keras.Model) -> keras.Model:
    """Joins the outputs of a detector with its own classes; returns other models unchanged.

    An OWL-ViT is unchanged, since its classes are texts.

    Example:
        >>> base = VisionTransformer(32, 16, 24, 2, 3, 48, num_classes=4)
        >>> with_one_output(detector(base, num_classes=2, num_tokens=5)).output_shape
        (None, 5, 7)
    """
    outputs = {*model.output} if isinstance(model.output, dict) else set()
    is_detector = outputs == {"logits", "boxes"} and not has_layer(model, "head_texts")
    return with_joined_boxes(model) if is_detector else model


def _trunk(model, place, layer):
    """Copies a backbone up to its norm, with new tokens; returns `(B, N, D)`."""
    trunk = keras.Model(model.inputs, surgery.normalized_tokens(model))
    before, count = place
    name = "detection_registers" if has_layer(model, "registers") else "registers"

    def call(other, *args, **kwargs):
        x = args[0] if isinstance(other, PatchDropout) else other(*args, **kwargs)
        if other.name != STEM or count is None:
            return x
        return RegisterTokens(count, before, **layer(name))(x)

    copy = keras.models.clone_model(trunk, call_function=call)
    for old in trunk.layers:
        if not isinstance(old, PatchDropout):
            copy.get_layer(old.name).set_weights(old.get_weights())
    return copy.output
