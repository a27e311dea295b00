"""How many multiply-adds each kind of layer does for one image.

A rule takes a layer, the shape of its input and a `Convention`, and gives for each of the layer's
products (multiply-adds, elements that it puts out).
"""

import dataclasses
import math
from collections.abc import Iterator

import keras

from vit_keras import layers
from vit_keras.layers.bottleneck import PreActivationUnit

NORM_MACS = 5  # an element, as fvcore counts LayerNorm


@dataclasses.dataclass(frozen=True)
class Convention:
    """What counts besides the products of weights and of attention.

    Attributes:
        padding: products with the zeros that a convolution pads its input with. fvcore and timm
            count them, XLA's cost analysis does not.
        norms: 5 multiply-adds for each element that is normalised, as fvcore counts LayerNorm.
    """

    padding: bool = True
    norms: bool = False


Products = Iterator[tuple[int, int]]


def count(layer, shape, convention: Convention) -> Products:
    """The products of one layer on `shape` (B, ...); ValueError where no rule is known for it."""
    for kind in type(layer).__mro__:
        if kind in RULES:
            return RULES[kind](layer, shape, convention)
    raise ValueError(
        f"The multiply-adds of layer {layer.name!r} are not known: it is a "
        f"{type(layer).__name__}. Give it a rule in vit_keras.compute.rules.RULES"
    )


def _nothing(layer, shape, convention) -> Products:
    return iter(())


def _dense(layer, shape, convention) -> Products:
    """Every position times the whole kernel: `(..., D)`, `(D, D')`."""
    positions = math.prod(shape[1:-1])
    yield positions * math.prod(layer.kernel.shape), positions * layer.kernel.shape[-1]


def _einsum_dense(layer, shape, convention) -> Products:
    """The product of the sizes of all axes that the equation names, but for the batch's."""
    inputs, kernel = layer.equation.split("->")[0].split(",")
    if "..." in inputs:
        raise ValueError(f"Layer {layer.name!r} has '...' in its equation: {layer.equation!r}")
    sizes = {**dict(zip(inputs, shape)), **dict(zip(kernel, layer.kernel.shape))}
    sizes[inputs[0]] = 1
    outputs = layer.equation.split("->")[1]
    yield math.prod(sizes.values()), math.prod(sizes[axis] for axis in outputs)


def _patch_embedding(layer, shape, convention) -> Products:
    patches = math.prod(layer.grid(shape[1:3]))
    yield patches * math.prod(layer.kernel.shape), patches * layer.hidden_size


def _norm(layer, shape, convention) -> Products:
    if convention.norms:
        yield NORM_MACS * math.prod(shape[1:]), 0


def _convolution(layer, shape, convention) -> Products:
    """Filters times the taps of each place; `(k, k, C / groups, filters)` and `(B, H, W, C)`."""
    if getattr(layer, "dilation_rate", (1, 1)) not in (1, (1, 1)):
        raise ValueError(f"Layer {layer.name!r} is dilated, which is not counted")
    strides = layer.strides if isinstance(layer.strides, tuple) else (layer.strides,) * 2
    sides = zip(shape[1:3], layer.kernel.shape[:2], strides)
    rows, columns = (_taps(*side, layer.padding, convention.padding) for side in sides)
    filters = math.prod(layer.kernel.shape[2:])
    outputs = math.prod(layer.compute_output_shape(shape)[1:])
    yield rows * columns * filters, outputs


def _taps(size: int, kernel: int, stride: int, padding: str, count_zeros: bool) -> int:
    """Along one axis, the taps of all places, with or without those on padded zeros."""
    places = {
        "valid": (size - kernel) // stride + 1,
        "same": -(-size // stride),
        "fixed": (size - 1) // stride + 1,
    }[padding]
    if count_zeros:
        return places * kernel
    before = {
        "valid": 0,
        "same": max((places - 1) * stride + kernel - size, 0) // 2,
        "fixed": (kernel - 1) // 2,
    }[padding]
    starts = (place * stride - before for place in range(places))
    return sum(min(start + kernel, size) - max(start, 0) for start in starts)


def _attention(layer, shape, convention, tokens_out: int | None = None) -> Products:
    """Projections, q kᵀ and the weighted sum of v, for N tokens, or from `tokens_out` to N."""
    tokens, width = shape[1:]
    queries = tokens if tokens_out is None else tokens_out
    projections = ((layer.query, queries), (layer.key, tokens), (layer.value, tokens))
    for projection, positions in (*projections, (layer.out, queries)):
        yield positions * math.prod(projection.kernel.shape), positions * width
    yield queries * tokens * width, layer.num_heads * queries * tokens
    yield queries * tokens * width, queries * width


def _mlp(layer, shape, convention) -> Products:
    yield from _dense(layer.dense_0, shape, convention)
    yield from _dense(layer.dense_1, shape, convention)


def _wrapped_block(layer, shape, convention) -> Products:
    return count(layer.block, shape, convention)


def _block(layer, shape, convention) -> Products:
    for part in (layer.norm_0, layer.attention, layer.norm_2, layer.mlp):
        yield from count(part, shape, convention)


def _map_head(layer, shape, convention) -> Products:
    pooled = (shape[0], 1, shape[-1])
    yield from _attention(layer.attention, shape, convention, tokens_out=1)
    yield from count(layer.norm, pooled, convention)
    yield from count(layer.mlp, pooled, convention)


def _root(layer, shape, convention) -> Products:
    yield from count(layer.conv_root, shape, convention)


UNIT_PARTS = ("conv1", "conv2", "conv3", "conv_proj", "gn1", "gn2", "gn3", "gn_proj")


def _unit(layer, shape, convention) -> Products:
    """Each part on the shape that the unit has built it for."""
    for part in (getattr(layer, name, None) for name in UNIT_PARTS):
        if part is not None:
            yield from count(part, part.get_build_config()["input_shape"], convention)


def _stage(layer, shape, convention) -> Products:
    for unit in layer.units:
        yield from count(unit, shape, convention)
        shape = unit.compute_output_shape(shape)


RULES = {
    keras.layers.Dense: _dense,
    keras.layers.EinsumDense: _einsum_dense,
    keras.layers.Conv2D: _convolution,
    keras.layers.LayerNormalization: _norm,
    keras.layers.GroupNormalization: _norm,
    keras.layers.BatchNormalization: _norm,
    layers.PatchEmbedding: _patch_embedding,
    layers.MultiHeadDotProductAttention: _attention,
    layers.MlpBlock: _mlp,
    layers.EncoderBlock: _block,
    layers.WithAttentionWeights: _wrapped_block,
    layers.MAPHead: _map_head,
    layers.StdConv: _convolution,
    layers.RootBlock: _root,
    layers.BottleneckUnit: _unit,
    PreActivationUnit: _unit,
    layers.ResNetStage: _stage,
    **dict.fromkeys(
        (
            keras.layers.Activation,
            keras.layers.Dropout,
            keras.layers.Flatten,
            keras.layers.GlobalAveragePooling1D,
            keras.layers.GlobalAveragePooling2D,
            keras.layers.GlobalMaxPooling1D,
            keras.layers.GlobalMaxPooling2D,
            keras.layers.MaxPooling2D,
            keras.layers.ReLU,
            keras.layers.Rescaling,
            keras.layers.Reshape,
            layers.AddPositionEmbs,
            layers.ClassToken,
            layers.DropClassToken,
            layers.PatchDropout,
            layers.ResNetInput,
            layers.TakeClassToken,
        ),
        _nothing,
    ),
}
