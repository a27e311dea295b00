"""What the forward pass keeps for the backward pass, derived from each layer's products.

A product keeps what it multiplies, a normalization its statistics, a nonlinear function its input.
For a block of width D with H heads and an MLP of M units, that is for each of N tokens: the input
of the block, the input of the second half, two normalized inputs, q, k, v and attention's result,
8 D together, and 2 M in the MLP. How the weights of attention are kept depends on the program:

- `FUSED`: attention is one kernel, which keeps a logarithm for each head and token; element by
  element, functions are computed again. torch works like this, and JAX on accelerators.
- `XLA_CPU`: the program that XLA makes for processors. It writes out softmax's numerators and
  weights, H N each for a token; the tanh in GELU; the scale and the product of a normalization.
  It computes in float32 whatever `dtype` says, and keeps all that rematerialization would drop.
- `XLA_CPU_LONG`: the same for long sequences (`kernels.long_sequences`), where attention is one
  kernel, a normalization keeps its result alone, and the MLP the input of GELU.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator

import keras

from vit_keras import layers
from vit_keras.compute import Convention, count
from vit_keras.compute.nested import layer_calls

FLOAT32 = 4  # bytes
LONG = 1024  # tokens from which sequences are long, where a run has not measured it
BROADCAST_ROWS = 4096  # from more rows on, XLA:CPU writes out numbers that are repeated along a row


@dataclasses.dataclass(frozen=True)
class Part:
    """The part of a training step that one device computes at a time.

    Attributes:
        images: Its images.
        itemsize: Bytes of an activation.
        partitioned: Whether XLA divides the program over several devices.
    """

    images: int
    itemsize: int
    partitioned: bool = False


@dataclasses.dataclass(frozen=True)
class Program:
    """How a backend's program keeps activations.

    Attributes:
        norm: Elements that a normalization of `(B, N, D)` keeps besides its input.
        attention: Elements that softmax(q kᵀ) of H heads keeps.
        activation: How many tensors the function of the MLP keeps, its result among them.
        computes_in_float32: Whether all activations take 4 bytes.
        mask: Bytes of an element that dropout may have set to 0.
        drops: Whether `model.rematerialise` saves memory.
        sums_in_new_memory: Whether the sums of gradients over devices take memory beside them.
    """

    norm: Callable[[Part, int, int], float]
    attention: Callable[[Part, int, int], float]
    activation: dict[str, int]
    computes_in_float32: bool
    mask: int
    drops: bool
    sums_in_new_memory: bool


def _xla_cpu_norm(part, tokens, width):
    """The result, the scale and the product; also the difference and the mean, if repeated."""
    rows = part.images * tokens
    return (5 if rows > BROADCAST_ROWS else 3) * rows * width


def _xla_cpu_attention(part, tokens, heads):
    """The numerators and the weights; also the denominators, if repeated."""
    rows = part.images * tokens * heads
    repeated = rows > BROADCAST_ROWS and not part.partitioned
    return (3 if repeated else 2) * rows * tokens


FUSED = Program(
    norm=lambda part, tokens, width: part.images * tokens * width,
    attention=lambda part, tokens, heads: part.images * tokens * heads,
    activation={"exact": 2, "tanh": 2, "quick": 2, "swiglu": 4},
    computes_in_float32=False,
    mask=1,
    drops=True,
    sums_in_new_memory=False,
)
XLA_CPU = Program(
    norm=_xla_cpu_norm,
    attention=_xla_cpu_attention,
    activation={"exact": 4, "tanh": 3, "quick": 3, "swiglu": 5},
    computes_in_float32=True,
    mask=8,
    drops=False,
    sums_in_new_memory=True,
)
XLA_CPU_LONG = dataclasses.replace(
    XLA_CPU,
    norm=FUSED.norm,
    attention=FUSED.attention,
    activation={"exact": 1, "tanh": 1, "quick": 1, "swiglu": 5},
)
PROGRAMS = {"fused": FUSED, "xla_cpu": XLA_CPU}


@dataclasses.dataclass(frozen=True)
class Kept:
    """Bytes of one layer's activations between its forward and its backward pass.

    Attributes:
        layer: The layer's name.
        bytes: What its backward pass needs.
        workspace: What the backward pass takes beside this.
        gradients: The gradients of the layer's weights, in float32.
        input: If rematerialization drops the rest, the layer's input, which is kept alone.
    """

    layer: keras.layers.Layer
    bytes: float
    workspace: float = 0
    gradients: float = 0
    input: float | None = None

    @property
    def between(self) -> float:
        """The bytes between the forward and the backward pass of the layer."""
        return self.bytes if self.input is None else self.input


def _block(layer, shape, part, program) -> Kept:
    """Bytes of an `EncoderBlock` on tokens `(B, N, D)`."""
    images, (tokens, width), options = part.images, shape[1:], layer.options
    size = images * tokens  # of one channel
    split, window, whole = _windows(layer.attention.windows, part, tokens)
    padded, branches = split.images * window, 1 if options.parallel else 2
    softmax = FUSED if _is_fused(layer, _of_tokens(program, window)) else XLA_CPU
    program = _of_tokens(program, tokens)
    recomputed = not (layer.dropout_rate or options.mlp_norm)
    functions = (program if recomputed else _of_tokens(program, 0)).activation
    function = functions["swiglu" if options.mlp == "swiglu" else layer.gelu]
    norms = [width] * (branches + options.attention_norm) + [layer.mlp_dim] * options.mlp_norm
    normalized = (program if options.norm == "layer" else _of_tokens(program, 0)).norm
    elements = (
        sum(normalized(part, tokens, channels) for channels in norms)
        + softmax.attention(split, window, layer.num_heads)
        + width * (4 * padded + 2 * size * options.qk_norm)  # q, k, v and the result
        + size * width * max(whole, program is XLA_CPU_LONG)  # the result as rows
        + size * width * (branches if options.layer_scale is not None else 0)
        + size * function * layer.mlp_dim
    )
    masks = 2 * width + layer.mlp_dim if layer.dropout_rate else 0
    masks += layer.num_heads * window * padded // size if layer.attention_dropout_rate else 0
    halves = size * width * FLOAT32 * branches  # normalized in float32
    total = elements * part.itemsize + halves + size * masks * program.mask
    gradients = size * (2 * width + max(layer.mlp_dim, 4 * width)) * part.itemsize
    dropped = size * width * part.itemsize if layer.rematerialise and program.drops else None
    return Kept(layer, total, workspace=gradients, input=dropped)


def _windows(windows, part, tokens):
    """The part with windows for images, what a window's patches see, and tensors of all tokens."""
    if windows is None:
        return part, tokens, 0
    split = dataclasses.replace(part, images=part.images * windows.count)
    return split, windows.patches + windows.prefix(tokens), 3 if windows.prefix(tokens) else 1


def _is_fused(layer, program):
    explicit = layer.attention_dropout_rate or layer.attention.relative is not None
    return program in (FUSED, XLA_CPU_LONG) and not explicit


def _of_tokens(program, tokens):
    """The program for sequences of that length; XLA's differs where they are long."""
    if program not in (XLA_CPU, XLA_CPU_LONG):
        return program
    return XLA_CPU_LONG if tokens >= LONG else XLA_CPU


def _patches(layer, shape, part, program) -> Kept:
    """Bytes of the patches, which are the rows of the matrix that the kernel multiplies."""
    patches = math.prod(layer.grid(shape[1:3]))
    size = part.images * patches * math.prod(layer.kernel.shape[:-1]) * part.itemsize
    return Kept(layer, size)


def _norm(layer, shape, part, program) -> Kept:
    """Bytes of a normalization of `(B, ..., D)`, and of its input."""
    tokens, inputs = math.prod(shape[1:-1]), part.images * math.prod(shape[1:])
    if isinstance(layer, keras.layers.LayerNormalization) and len(shape) == 3:
        program = _of_tokens(program, tokens)
    total = program.norm(part, tokens, shape[-1]) * part.itemsize + inputs * FLOAT32
    return Kept(layer, total, workspace=2 * inputs * part.itemsize)


def _product(layer, shape, part, program) -> Kept:
    """Bytes of a product's input and result."""
    positions = part.images * math.prod(shape[1:-1])
    elements = positions * (shape[-1] + layer.kernel.shape[-1])
    return Kept(layer, elements * part.itemsize)


def _pooling(layer, shape, part, program) -> Kept:
    """Bytes of the keys, the values and the weights of attention with one query."""
    tokens, width = shape[1:]
    elements = part.images * tokens * (2 * width + 2 * layer.num_heads)
    return Kept(layer, elements * part.itemsize)


RULES: dict[type, Callable[..., Kept]] = {
    layers.EncoderBlock: _block,
    layers.PatchEmbedding: _patches,
    keras.layers.LayerNormalization: _norm,
    keras.layers.RMSNormalization: _norm,
    keras.layers.Dense: _product,
    layers.MAPHead: _pooling,
}


def kept(model: keras.Model, part: Part, program: Program) -> Iterator[Kept]:
    """Yields what each layer of a model keeps, in the order of the computation.

    Args:
        model: A functional model, also one without values.
        part: The images that a device computes at a time.
        program: A value of `PROGRAMS`.

    Raises:
        ValueError: A layer that multiplies by weights has no rule, as in a ResNet.
    """
    for layer, shapes in layer_calls(model):
        rule = next((RULES[kind] for kind in type(layer).__mro__ if kind in RULES), None)
        weights = layer.trainable_variables
        gradients = FLOAT32 * sum(math.prod(variable.shape) for variable in weights)
        for number, shape in enumerate(shapes):
            added = 0 if number else gradients  # one array, however often the layer is called
            if rule is not None:
                yield dataclasses.replace(rule(layer, shape, part, program), gradients=added)
            elif not any(elements for _, elements in count(layer, shape, Convention())):
                yield Kept(layer, 0, gradients=added)
            else:
                raise ValueError(
                    "A plan knows what the layers of a Vision Transformer keep for the backward "
                    f"pass. Received: layer {layer.name!r}, a {type(layer).__name__}. Measure one "
                    "update of this model instead"
                )
