"""Cost rules: the multiply-adds that each kind of layer does for one image.

A rule is a function of a built layer, the shape of the layer's (first) input with the batch axis,
and a `Convention`. For each product that the layer computes for one image, it yields the product's
multiply-adds and the number of elements in its result.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator

import keras

from vit_keras import layers
from vit_keras.layers.attention import count_pairs
from vit_keras.support.keras_internals import sublayers

# Keras' layers that multiply their inputs with each other; its others without weights need no rule.
PRODUCTS_OF_INPUTS = (keras.layers.Attention, keras.layers.AdditiveAttention, keras.layers.Dot)
NORM_MACS = 5  # for each element, as fvcore counts LayerNorm


@dataclasses.dataclass(frozen=True)
class Convention:
    """What to count besides products with weights and the products of attention.

    Attributes:
        padding: Whether to count the products with the zeros that pad a convolution's input.
            fvcore and timm count them; XLA's cost analysis does not.
        norms: Whether to count 5 multiply-adds for each normalized element, as fvcore counts
            LayerNorm.
    """

    padding: bool = True
    norms: bool = False


Products = Iterator[tuple[int, int]]
Shape = tuple[int | None, ...]
Rule = Callable[[keras.layers.Layer, Shape, Convention], Products]


def count(layer, shape: Shape, convention: Convention) -> Products:
    """Yields (multiply-adds, elements in the result) for each product of `layer`.

    A layer without its own rule is counted by the rule of its nearest base class. Layers of Keras
    and of this package without weights multiply nothing.

    Args:
        layer: A built layer.
        shape: The shape of the layer's first input, `(B, ...)`. The batch size is ignored.
        convention: What to count besides products with weights.

    Raises:
        ValueError: If no rule covers the layer, or if the rule does not cover its arguments.

    Example:
        >>> layer = keras.layers.LayerNormalization()
        >>> list(count(layer, (None, 197, 768), Convention(norms=True)))  # 5 for each element
        [(756480, 0)]
    """
    for kind in type(layer).__mro__:
        if kind in RULES:
            return RULES[kind](layer, shape, convention)
    is_known = type(layer).__module__.startswith(("keras.", "vit_keras."))
    multiplies = not isinstance(layer, keras.Layer) or isinstance(layer, PRODUCTS_OF_INPUTS)
    if is_known and not multiplies and not layer.weights:
        return iter(())
    raise ValueError(
        f"Every layer needs a cost rule to be counted. Received: layer {layer.name!r}, a "
        f"{type(layer).__name__}, which has none. Add a rule for its class to "
        "`vit_keras.inspection.RULES`; CONTRIBUTING.md shows how, under 'A new layer'"
    )


def _dense(layer, shape, convention) -> Products:
    """Multiplies each position by the whole kernel: `(..., D)` by `(D, D')`."""
    positions = math.prod(shape[1:-1])
    yield positions * math.prod(layer.kernel.shape), positions * layer.kernel.shape[-1]


def _einsum_dense(layer, shape, convention) -> Products:
    """Multiplies each element of the result by the kernel's axes that the result lacks."""
    inputs, outputs = layer.equation.split("->")
    kernel = zip(inputs.split(",")[1], layer.kernel.shape)
    elements = math.prod(layer.compute_output_shape(shape)[1:])
    yield elements * math.prod(size for axis, size in kernel if axis not in outputs), elements


def _patch_embedding(layer, shape, convention) -> Products:
    patches = math.prod(layer.grid(shape[1:3]))
    yield patches * math.prod(layer.kernel.shape), patches * layer.hidden_size


def _norm(layer, shape, convention) -> Products:
    if convention.norms:
        yield NORM_MACS * math.prod(shape[1:]), 0


def _convolution(layer, shape, convention) -> Products:
    """Multiplies the kernel's taps at all positions by the channels and filters.

    The kernel is `(k, k, C / groups, filters)`, the input `(B, H, W, C)`.
    """
    if getattr(layer, "dilation_rate", (1, 1)) not in (1, (1, 1)):
        raise ValueError(
            "To be counted, a convolution must not be dilated. Received: layer "
            f"{layer.name!r} with dilation_rate={layer.dilation_rate}"
        )
    strides = layer.strides if isinstance(layer.strides, tuple) else (layer.strides,) * 2
    macs = math.prod(layer.kernel.shape[2:])
    for size, kernel, stride in zip(shape[1:3], layer.kernel.shape[:2], strides):
        same = -(-size // stride)
        places, before = {
            "valid": ((size - kernel) // stride + 1, 0),
            "same": (same, max((same - 1) * stride + kernel - size, 0) // 2),
            "fixed": ((size - 1) // stride + 1, (kernel - 1) // 2),
        }[layer.padding]
        starts = (place * stride - before for place in range(places))
        on_image = (min(start + kernel, size) - max(start, 0) for start in starts)
        macs *= places * kernel if convention.padding else sum(on_image)
    yield macs, math.prod(layer.compute_output_shape(shape)[1:])


def _transposed_convolution(layer, shape, convention) -> Products:
    """Multiplies each position of the input `(B, H, W, C)` by the kernel `(k, k, filters, C)`."""
    outputs = math.prod(layer.compute_output_shape(shape)[1:])
    yield math.prod(shape[1:3]) * math.prod(layer.kernel.shape), outputs


def _attention(layer, shape, convention, tokens_out: int | None = None) -> Products:
    """Counts the projections, q kᵀ, relative logits and the weighted sum of v.

    N tokens, or `tokens_out` queries, attend to N tokens, or only within windows.
    """
    tokens, width = shape[1:]
    queries = tokens if tokens_out is None else tokens_out
    rows, pairs = count_pairs(layer.windows, queries, tokens)
    projections = ((layer.query, queries), (layer.key, tokens), (layer.value, tokens))
    for projection, positions in (*projections, (layer.out, queries)):
        yield positions * math.prod(projection.kernel.shape), positions * width
    yield pairs * width, layer.num_heads * pairs
    heads = (shape[0], tokens, layer.num_heads, layer.head_size)
    for sublayer in (layer.relative, layer.query_norm, layer.key_norm):
        if sublayer is not None:
            yield from count(sublayer, heads, convention)
    if layer.norm is not None:
        yield from count(layer.norm, (shape[0], queries, width), convention)
    yield pairs * width, rows * width


def _self_attention(layer, shape, convention) -> Products:
    _, tokens, width = shape
    for projection in layer.branches:
        yield from _dense(projection, shape, convention)
    yield tokens**2 * width, layer.num_heads * tokens**2
    yield tokens**2 * width, tokens * width


def _relative_logits(layer, shape, convention) -> Products:
    """Multiplies each query `(N, H, d)` by the embeddings `(N, d)` of its offsets to all keys."""
    _, tokens, heads, head_size = shape
    yield tokens * heads * head_size * tokens, heads * tokens * tokens


def _mlp(layer, shape, convention) -> Products:
    if isinstance(layer, layers.SwiGLU):
        yield from _dense(layer.gate, shape, convention)
    yield from _dense(layer.dense_0, shape, convention)
    if layer.hidden_norm is not None:
        yield from count(layer.hidden_norm, (*shape[:-1], layer.mlp_dim), convention)
    yield from _dense(layer.dense_1, (*shape[:-1], layer.mlp_dim), convention)


def _block(layer, shape, convention) -> Products:
    for sublayer in layer.branches:
        yield from count(sublayer, shape, convention)


def _map_head(layer, shape, convention) -> Products:
    pooled = (shape[0], 1, shape[-1])
    yield from _attention(layer.attention, shape, convention, tokens_out=1)
    yield from count(layer.norm, pooled, convention)
    yield from count(layer.mlp, pooled, convention)


def _residual(layer, shape, convention) -> Products:
    """Counts each convolution and normalization in a layer with the input that it was built for."""
    for sublayer in sublayers(layer):
        if isinstance(sublayer, (layers.StdConv, layers.GroupNorm)):
            yield from count(sublayer, sublayer.get_build_config()["input_shape"], convention)


def _prototype_head(layer, shape, convention) -> Products:
    """Multiplies by the three kernels of the MLP, and by the prototypes."""
    positions = math.prod(shape[1:-1])
    for kernel in (*(dense.kernel for dense in layer.dense_layers), layer.kernel):
        yield positions * math.prod(kernel.shape), positions * kernel.shape[-1]


RULES: dict[type, Rule] = {
    keras.layers.Dense: _dense,
    keras.layers.EinsumDense: _einsum_dense,
    keras.layers.Conv2D: _convolution,
    keras.layers.Conv2DTranspose: _transposed_convolution,
    keras.layers.LayerNormalization: _norm,
    keras.layers.RMSNormalization: _norm,
    keras.layers.GroupNormalization: _norm,
    keras.layers.BatchNormalization: _norm,
    layers.PatchEmbedding: _patch_embedding,
    layers.MultiHeadDotProductAttention: _attention,
    layers.MultiHeadSelfAttention: _self_attention,
    layers.RelativeLogits: _relative_logits,
    layers.FeatureAdapter: _mlp,
    layers.MlpBlock: _mlp,
    layers.SwiGLU: _mlp,
    layers.EncoderBlock: _block,
    layers.TransformerBlock: _block,
    layers.WithAttentionWeights: lambda layer, *rest: count(layer.block, *rest),
    layers.MAPHead: _map_head,
    layers.PrototypeHead: _prototype_head,
    layers.StdConv: _convolution,
    **dict.fromkeys((layers.RootBlock, layers.ResNetStage), _residual),
    **dict.fromkeys((layers.BottleneckUnit, layers.PreActivationUnit), _residual),
}
# The other public layers multiply nothing by weights, as a test of each one counts.
RULES |= {
    kind: lambda *_: iter(())
    for kind in (getattr(layers, name) for name in layers.__all__)
    if issubclass(kind, keras.layers.Layer) and not any(base in RULES for base in kind.__mro__)
}
