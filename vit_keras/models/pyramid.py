"""Feature maps of a model's blocks, for detectors and segmenters."""

from collections.abc import Sequence

import keras

from vit_keras.layers import PatchMap
from vit_keras.models.description import with_outputs
from vit_keras.models.image_model import ImageModel
from vit_keras.models.surgery import Block, backbone_of, blocks_of, patch_grid


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
    model = backbone_of(model)
    available = blocks_of(model)
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


def map_of(model: keras.Model, block: Block, norm: bool):
    """Returns the output of a block as a map `(B, h, w, D)`."""
    x, dtype = block.layer.output, block.layer.dtype_policy
    if len(x.shape) == 4:
        return x
    if norm:
        x = model.get_layer("encoder_norm")(x)
    name = f"{block.layer.name}_map"
    return PatchMap(patch_grid(model), dtype=dtype, name=name)(x)


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
