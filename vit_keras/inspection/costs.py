"""The costs of a forward pass, layer by layer.

A cost rule says how many multiply-adds a kind of layer performs for one image. It is a function
of a built layer, the shape of the layer's (first) input with the batch axis, and a `Convention`.
For each product that the layer computes for one image, it yields the product's multiply-adds and
the number of elements in its result.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator

import keras

from vit_keras import layers, variants
from vit_keras.layers.attention import count_pairs
from vit_keras.models import from_variant
from vit_keras.models.common import build_without_values
from vit_keras.support.checks import pair
from vit_keras.support.command_line import aligned
from vit_keras.support.keras_internals import input_shapes, sublayers


@dataclasses.dataclass(frozen=True)
class Row:
    """The costs of one layer for one image.

    Attributes:
        name: The layer's name.
        kind: The name of the layer's class.
        params: The number of weights.
        macs: The number of multiply-adds, summed over all calls of the layer in the model.
        activations: The number of elements in the results of its convolutions and matrix products,
            including attention, as fvcore counts them.

    Example:
        >>> max(flops("B/16").rows, key=lambda row: row.macs).name
        'encoderblock_0'
    """

    name: str
    kind: str
    params: int
    macs: int
    activations: int


@dataclasses.dataclass(frozen=True)
class Costs:
    """The costs of a model for one image: a row for each layer, and the sums.

    Attributes:
        model: The model's name, or the name of the variant.
        image_size: (height, width) in pixels.
        rows: One `Row` for each layer, in the order of computation.
        params: The number of weights.
        macs: The number of multiply-adds.
        activations: The number of elements in the results of convolutions and matrix products.

    Example:
        >>> costs = flops("Ti/16")
        >>> costs.params, costs.image_size
        (5717416, (224, 224))
    """

    model: str
    image_size: tuple[int, int]
    rows: tuple[Row, ...]
    params: int
    macs: int
    activations: int

    @property
    def flops(self) -> int:
        """Twice the multiply-adds, which is the paper's convention."""
        return 2 * self.macs

    @property
    def gmacs(self) -> float:
        """The number of multiply-adds in billions."""
        return self.macs / 1e9


def abstract_model(build: str | Callable[[], keras.Model], **arguments) -> keras.Model:
    """Builds a model whose weights have shapes but no values, so that it takes no memory.

    Such a model can be counted and described, but it cannot compute anything.

    Args:
        build: A variant's name, or a function without arguments that returns a model.
        **arguments: The arguments of `vit_keras.models.from_variant`, if `build` is a variant's
            name.

    Returns:
        The model.

    Example:
        >>> abstract_model("H/14", image_size=224, num_classes=1000).count_params()
        632045800
    """
    if isinstance(build, str):
        variant, build = build, lambda: from_variant(variant, **arguments)
    return build_without_values(build)


def flops(
    model: keras.Model | str,
    image_size: int | tuple[int, int] | None = None,
    *,
    padding: bool = True,
    norms: bool = False,
    num_classes: int | None = 1000,
) -> Costs:
    """Counts the costs of a forward pass of one image, layer by layer.

    The count includes products with weights and the products of attention: q kᵀ, relative logits
    and the weighted sum of v, including the padding of windows. It excludes biases, activation
    functions, softmax and the standardization of filters. A layer is counted once for each of its
    calls.

    Args:
        model: A functional model whose first input is the images, or a variant's name. A variant is
            built without memory for its weights.
        image_size: Pixels, an int or (height, width). The default is the model's own size. For a
            variant, it is the published size: 224, or another in some families.
        padding: Whether to count the products with zeros that pad a convolution's input.
        norms: Whether to count 5 multiply-adds for each normalized element.
        num_classes: The size of a variant's classifier; None for no classifier.

    Returns:
        `Costs`.

    Raises:
        ValueError: If a layer has no cost rule, or if the size of the images is unknown.

    Example:
        >>> flops("B/16").gmacs  # torchvision publishes 17.56
        17.5638...
    """
    name = model if isinstance(model, str) else model.name
    if isinstance(model, str):
        size = variants.get(model).image_size if image_size is None else image_size
        model = abstract_model(model, image_size=size, num_classes=num_classes)
    elif image_size is not None:
        (images,), side = model.inputs, pair(image_size, "image_size")
        shape = (*side, images.shape[-1])
        resized = keras.Input(shape, dtype=images.dtype, name=images.name)
        copy = functools.partial(keras.models.clone_model, model, input_tensors=resized)
        model = abstract_model(copy)
    size = tuple(model.inputs[0].shape[-3:-1])  # also for several views `(B, n, H, W, C)`
    if None in size:
        raise ValueError(
            "The costs of a model depend on the size of the images. Received: model "
            f"{name!r}, which takes images of any size; give an `image_size`"
        )
    rows = tuple(_rows(model, Convention(padding, norms)))
    sums = {k: sum(getattr(row, k) for row in rows) for k in ("params", "macs", "activations")}
    return Costs(name, size, rows, **sums)


def _rows(model, convention) -> Iterator[Row]:
    for layer, shapes in layer_calls(model):
        products = itertools.chain(*(count(layer, shape, convention) for shape in shapes))
        macs, activations = (sum(column) for column in zip((0, 0), *products))
        yield Row(layer.name, type(layer).__name__, layer.count_params(), macs, activations)


def table(model: Costs | keras.Model | str, **arguments) -> str:
    """Formats the costs of a model as text: a line for each layer, then the sums.

    Layers with neither weights nor multiply-adds are left out.

    Args:
        model: `Costs`, or a model or the name of a variant, whose costs are then counted.
        **arguments: The other arguments of `flops`, for a model or a name.

    Returns:
        The table, with lines separated by newlines.

    Example:
        >>> print(table("Ti/16").splitlines()[-1])
        Ti/16 at 224x224: 5.72 M parameters, 1.25 GMACs, 2.51 GFLOPs, 5.97 M activations
    """
    costs = model if isinstance(model, Costs) else flops(model, **arguments)
    rows = [row for row in costs.rows if row.params or row.macs]
    total = Row("total", "", costs.params, costs.macs, costs.activations)
    cells = [["layer", "kind", "params", "MMACs", "M acts"]]
    for row in (*rows, total):
        millions = (f"{count / 1e6:,.2f}" for count in (row.macs, row.activations))
        cells.append([row.name, row.kind, f"{row.params:,}", *millions])
    lines = aligned(cells, left=2)
    size = "x".join(map(str, costs.image_size))
    lines.append(
        f"{costs.model} at {size}: {costs.params / 1e6:.2f} M parameters, {costs.gmacs:.2f} GMACs, "
        f"{costs.flops / 1e9:.2f} GFLOPs, {costs.activations / 1e6:.2f} M activations"
    )
    return "\n".join(lines)


JFT_IMAGES = 303_000_000
JFT_CLASSES = 18_291  # Section 4.1 says 18k
STEP = 3  # forward passes that a training step costs: one, and two for the backward pass


def training_exaflops(
    model: keras.Model | str,
    images: float = JFT_IMAGES,
    epochs: float = 1,
    image_size: int | tuple[int, int] | None = None,
    num_classes: int | None = JFT_CLASSES,
) -> float:
    """Counts the floating-point operations of training, in units of 10¹⁸ (Table 6).

    A multiply-add is 2 operations, and a training step costs 3 forward passes. Products with
    weights, products of attention and normalization are counted. Products with the zeros that pad a
    map are not, as in XLA's cost analysis. The paper does not state its convention. Of the
    conventions that `flops` offers, this is the one for which all rows of Table 6 lie within 3%
    (docs/inspection.md).

    Args:
        model: A functional model, or a variant's name. A variant is built for 224² pixels.
        images: The number of images in an epoch; JFT-300M's by default.
        epochs: The number of epochs.
        image_size: As in `flops`.
        num_classes: As in `flops`; by default the 18k classes of JFT-300M.

    Returns:
        ExaFLOPs.

    Raises:
        ValueError: If `flops` cannot count the model.

    Example:
        >>> training_exaflops("L/16", epochs=7)  # the paper prints 783
        784.2...
    """
    forward = flops(model, image_size, padding=False, norms=True, num_classes=num_classes)
    return STEP * forward.flops * images * epochs / 1e18


def device_days(exaflops: float, device_tflops: float, utilization: float = 1.0) -> float:
    """Converts the cost of training into days on one device.

    Args:
        exaflops: The cost in 10¹⁸ floating-point operations.
        device_tflops: The device's peak rate in 10¹² operations per second: 61.5 for a TPUv3 core.
        utilization: The fraction of the peak rate that training reaches, in (0, 1].

    Returns:
        Days.

    Raises:
        ValueError: If `utilization` is not above 0 and at most 1.

    Example:
        >>> device_days(training_exaflops("L/16", epochs=7), device_tflops=61.5, utilization=0.4)
        368.9...
    """
    if not 0 < utilization <= 1:
        raise ValueError(f"`utilization` must be above 0 and at most 1. Received: {utilization}")
    return exaflops * 1e18 / (device_tflops * 1e12 * utilization) / 86_400


def layer_calls(model: keras.Model) -> Iterator[tuple[keras.layers.Layer, list[tuple]]]:
    """Yields each layer of a functional model, with the shape of the first input of each call."""
    for layer in model.operations:
        if not isinstance(layer, keras.layers.InputLayer):
            yield layer, input_shapes(model, layer)


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

    A layer without its own rule is counted by the rule of its nearest base class. The other layers
    in `vit_keras.layers` cost nothing, and neither do Keras' other layers without weights that do
    not multiply their inputs.

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
    multiplies = not isinstance(layer, keras.Layer) or isinstance(layer, PRODUCTS_OF_INPUTS)
    # A test counts what each layer in `vit_keras.layers` multiplies.
    known = "vit_keras.layers." if multiplies or layer.weights else ("keras.", "vit_keras.")
    if type(layer).__module__.startswith(known) and not multiplies:
        return iter(())
    raise ValueError(
        f"Every layer needs a cost rule to be counted. Received: layer {layer.name!r}, a "
        f"{type(layer).__name__}, which has none. Add a rule for its class to "
        "`vit_keras.inspection.RULES`; CONTRIBUTING.md shows how, under 'A new layer'"
    )


def _dense(layer, shape, convention) -> Products:
    """Counts the kernel's inputs for each element of the result, `(..., D')`."""
    elements = math.prod(layer.compute_output_shape(shape)[1:])
    yield elements * math.prod(layer.kernel.shape[:-1]), elements


def _einsum_dense(layer, shape, convention) -> Products:
    """Counts, for each element of the result, the entries of the kernel's axes that it lacks."""
    inputs, outputs = layer.equation.split("->")
    kernel = zip(inputs.split(",")[1], layer.kernel.shape)
    elements = math.prod(layer.compute_output_shape(shape)[1:])
    yield elements * math.prod(size for axis, size in kernel if axis not in outputs), elements


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


def _relative_logits(layer, shape, convention) -> Products:
    """Multiplies each query `(N, H, d)` by the embeddings `(N, d)` of its offsets to all keys."""
    _, tokens, heads, head_size = shape
    yield tokens * heads * head_size * tokens, heads * tokens * tokens


def _parts(layer, shape, convention) -> Products:
    """Counts the sublayers at all positions, each with the width that it was built for."""
    for part in getattr(layer, "branches", sublayers(layer)[1:]):
        width = (part.get_build_config() or {"input_shape": shape})["input_shape"][-1]
        yield from count(part, (*shape[:-1], width), convention)


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
    """Multiplies by the three kernels of the MLP, and by its own kernel, the prototypes."""
    yield from _parts(layer, shape, convention)
    yield from _dense(layer, shape, convention)


RULES: dict[type, Rule] = {
    keras.layers.Dense: _dense,
    keras.layers.EinsumDense: _einsum_dense,
    keras.layers.Conv2D: _convolution,
    keras.layers.Conv2DTranspose: _transposed_convolution,
    **dict.fromkeys((keras.layers.LayerNormalization, keras.layers.RMSNormalization), _norm),
    **dict.fromkeys((keras.layers.GroupNormalization, keras.layers.BatchNormalization), _norm),
    layers.PatchEmbedding: _dense,
    layers.MultiHeadDotProductAttention: _attention,
    layers.RelativeLogits: _relative_logits,
    **dict.fromkeys((layers.FeatureAdapter, layers.MlpBlock, layers.SwiGLU), _parts),
    layers.EncoderBlock: _parts,
    layers.WithAttentionWeights: lambda layer, *rest: count(layer.block, *rest),
    layers.MAPHead: _map_head,
    layers.PrototypeHead: _prototype_head,
    layers.StdConv: _convolution,
    **dict.fromkeys((layers.RootBlock, layers.ResNetStage), _residual),
    **dict.fromkeys((layers.BottleneckUnit, layers.PreActivationUnit), _residual),
}
