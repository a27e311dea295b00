"""The costs of a forward pass, layer by layer."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator

import keras

from vit_keras import variants
from vit_keras.inspection.cost_rules import Convention, count
from vit_keras.models import from_variant
from vit_keras.models.common import build_without_values
from vit_keras.support.checks import pair
from vit_keras.support.command_line import aligned
from vit_keras.support.keras_internals import input_shapes


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

    Example:
        >>> costs = flops("Ti/16")
        >>> costs.params, costs.image_size
        (5717416, (224, 224))
    """

    model: str
    image_size: tuple[int, int]
    rows: tuple[Row, ...]

    @property
    def params(self) -> int:
        """The number of weights."""
        return sum(row.params for row in self.rows)

    @property
    def macs(self) -> int:
        """The number of multiply-adds."""
        return sum(row.macs for row in self.rows)

    @property
    def activations(self) -> int:
        """The number of elements in the results of convolutions and matrix products."""
        return sum(row.activations for row in self.rows)

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
    functions, softmax and the standardization of filters. A layer counts once for each of its
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
        clone = functools.partial(keras.models.clone_model, input_tensors=resized)
        model = abstract_model(functools.partial(clone, model))
    size = tuple(model.inputs[0].shape[-3:-1])  # also for several views `(B, n, H, W, C)`
    if None in size:
        raise ValueError(
            "The size of the images must be known to count a model. Received: model "
            f"{name!r}, which takes images of any size; give an `image_size`"
        )
    return Costs(name, size, tuple(_rows(model, Convention(padding, norms))))


def _rows(model, convention) -> Iterator[Row]:
    for layer, shapes in layer_calls(model):
        products = itertools.chain(*(count(layer, shape, convention) for shape in shapes))
        macs, activations = (sum(column) for column in zip((0, 0), *products))
        yield Row(layer.name, type(layer).__name__, layer.count_params(), macs, activations)


def table(model: Costs | keras.Model | str, **arguments) -> str:
    """Formats the costs of a model as text: a line for each layer, then the sums.

    Layers with neither weights nor multiply-adds are left out.

    Args:
        model: `Costs`, or a model or variant's name to count.
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
    conventions that `flops` offers, this is the one for which all rows of Table 6 lie within 3 %
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
        raise ValueError(f"`utilization` must be above 0 and at most 1. Received: {utilization!r}")
    return exaflops * 1e18 / (device_tflops * 1e12 * utilization) / 86_400


def layer_calls(model: keras.Model) -> Iterator[tuple[keras.layers.Layer, list[tuple]]]:
    """Yields each layer of a functional model, with the shape of the first input of each call."""
    for layer in model.operations:
        if not isinstance(layer, keras.layers.InputLayer):
            yield layer, input_shapes(model, layer)
