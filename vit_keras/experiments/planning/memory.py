"""Estimates the memory that a training step takes on one device.

On accelerators, the estimate follows from what each layer keeps for the backward pass. A product
keeps its factors, a normalization its statistics, and a nonlinear function its input. A block of
width D with H heads and an MLP of M units keeps, for each of N tokens, the input of the block, the
input of the second half, two normalized inputs, q, k, v and the attention's result (8 D in total),
2 M in the MLP, and a logarithm for each head. Attention is one kernel, and elementwise functions
are computed again, as in torch, and in JAX on accelerators. XLA's program for a CPU works
differently, and reports its own memory (`compiled_memory`).
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import keras

from vit_keras import layers
from vit_keras.config import Config
from vit_keras.inspection import Convention, count
from vit_keras.inspection.costs import layer_calls
from vit_keras.layers import EncoderBlock
from vit_keras.models import from_model_config
from vit_keras.training.loop import compile_model, compiled_step
from vit_keras.training.topologies import axis_to_split

FLOAT32 = 4  # bytes
ITEMSIZE = {"float32": 4, "mixed_bfloat16": 2, "mixed_float16": 2}


class Kept(NamedTuple):
    """Bytes of one layer's activations between its forward and its backward pass.

    Attributes:
        bytes: The bytes that its backward pass needs.
        between: The bytes between the two passes: the same or, with rematerialization, only the
            input's.
        workspace: The additional bytes that the backward pass takes.
        gradients: The gradients of the layer's weights, in float32.
    """

    bytes: float
    between: float
    workspace: float = 0
    gradients: float = 0


def _block(layer, shape, images, itemsize) -> Kept:
    """Bytes of an `EncoderBlock` on tokens `(B, N, D)`."""
    (tokens, width), options, windows = shape[1:], layer.options, layer.attention.windows
    size = images * tokens  # per channel
    sequences, length, whole = images, tokens, 0
    if windows is not None:
        prefix = windows.prefix(tokens)
        sequences, length = images * windows.count, windows.patches + prefix
        whole = 3 if prefix else 1  # tensors of all tokens
    branches = 1 if options.parallel else 2
    explicit = layer.attention_dropout_rate or layer.attention.relative is not None
    norms = width * (branches + options.attention_norm) + layer.mlp_dim * options.mlp_norm
    elements = (
        size * norms
        + sequences * layer.num_heads * length * (2 * length if explicit else 1)
        + width * (4 * sequences * length + 2 * size * options.qk_norm)  # q, k, v and the result
        + size * width * whole
        + size * width * (branches if options.layer_scale is not None else 0)
        + size * layer.mlp_dim * (4 if options.mlp == "swiglu" else 2)
    )
    masks = 2 * width + layer.mlp_dim if layer.dropout_rate else 0
    if layer.attention_dropout_rate:
        masks += layer.num_heads * length * sequences * length // size
    halves = size * width * FLOAT32 * branches  # normalized in float32
    gradients = size * (2 * width + max(layer.mlp_dim, 4 * width)) * itemsize
    total = elements * itemsize + halves + size * masks  # a mask has one byte per element
    between = size * width * itemsize if layer.rematerialize else total
    return Kept(total, between, workspace=gradients)


def kept(model: keras.Model, images: int, itemsize: int) -> Iterator[Kept]:
    """Yields what each layer of a model keeps, in the order of computation.

    Outside blocks, a layer that normalizes or multiplies by weights keeps its input and results.

    Args:
        model: A functional model; its variables need no values.
        images: The number of images that a device processes at a time.
        itemsize: Bytes of an activation.

    Raises:
        ValueError: The model has layers of a ResNet, for which there is no rule.
    """
    for layer, shapes in layer_calls(model):
        if isinstance(layer, (layers.StdConv, layers.RootBlock, layers.ResNetStage)):
            raise ValueError(
                f"A plan covers only the layers of a Vision Transformer. Received: {layer.name!r}, "
                f"a {type(layer).__name__}. Measure one update of this model instead"
            )
        weights = layer.trainable_variables
        gradients = FLOAT32 * sum(math.prod(variable.shape) for variable in weights)
        for number, shape in enumerate(shapes):
            products = list(count(layer, shape, Convention(norms=True)))
            if isinstance(layer, EncoderBlock):
                row = _block(layer, shape, images, itemsize)
            else:
                results = sum(elements for _, elements in products)
                size = images * itemsize * (math.prod(shape[1:]) + results) if products else 0
                row = Kept(size, size)
            # The gradients are one array, no matter how often the layer is called.
            yield row._replace(gradients=0 if number else gradients)


class Memory(NamedTuple):
    """Bytes on each device at the peak of a training step.

    Attributes:
        weights: The weights in float32, or the device's shard of them.
        moments: The moments of the optimizer.
        average: Polyak's average of the weights.
        sums: The gradient sums of a batch that is computed in parts.
        batch: The images and targets that a device processes at a time.
        images: The number of images that a device processes at a time.
        copies: The kernels that layers read: rounded to the products' type, or gathered from other
            devices if the state is split.
        activations: What the forward pass keeps for the backward pass.
        gradients: The gradients that are held until the update.
        step: The most that copies, activations, gradients and a layer's workspace take at once. The
            backward pass begins with few gradients and ends with few activations, so this is less
            than their sum. For `compiled_memory`, the arrays of XLA's program.

    Example:
        >>> config = Config(batch=8, model=ModelConfig("Ti/16"))
        >>> model = abstract_model("Ti/16", image_size=224, num_classes=1000)
        >>> memory = device_memory(model, config)
        >>> round(memory.weights / 1e6, 1), round(memory.moments / 1e6, 1)
        (22.9, 45.7)
    """

    weights: float
    moments: float
    average: float
    sums: float
    batch: float
    images: int
    copies: float = 0
    activations: float = 0
    gradients: float = 0
    step: float = 0

    @property
    def state(self) -> float:
        """The memory that stays allocated between updates."""
        return self.weights + self.moments + self.average + self.sums

    @property
    def total(self) -> float:
        """The state, the batch and the step."""
        return self.state + self.batch + self.step


def device_memory(model: keras.Model, config: Config, devices: int = 1) -> Memory:
    """Computes the memory that training takes on each accelerator.

    Args:
        model: The model of the run; its variables need no values.
        config: The run; only `batch`, `optimizer`, `shard_state` and `model.dtype` matter.
        devices: The number of devices that share each batch.

    Returns:
        `Memory`.

    Raises:
        ValueError: The batch cannot be divided, or a layer has no rule.

    Example:
        >>> config = Config(batch=64, model=ModelConfig("S/16"), shard_state=True)
        >>> model = abstract_model("S/16", image_size=224, num_classes=1000)
        >>> alone, shared = (device_memory(model, config, count).moments for count in (1, 8))
        >>> round(alone / shared, 1)
        7.8
    """
    state, itemsize = _state(model, config, devices), ITEMSIZE[config.model.dtype]
    rows = list(kept(model, state.images, itemsize))
    copies = _copies(model, config, devices if config.shard_state else 1, itemsize)
    holds = devices > 1 or config.optimizer.grad_norm_clip is not None
    activations = remaining = sum(row.between for row in rows)
    peak = gradients = 0.0
    for row in reversed(rows):  # the backward pass
        again = row.bytes - row.between  # computed a second time
        peak = max(peak, remaining + again + row.workspace + gradients + row.gradients)
        remaining -= row.between
        gradients += row.gradients if holds else 0
    gradients = gradients if holds else max(row.gradients for row in rows)
    step = {"copies": copies, "activations": activations, "gradients": gradients}
    return state._replace(**step, step=copies + peak)


def compiled_memory(config: Config, num_classes: int = 1000) -> Memory:
    """Returns the memory that XLA reserves for a training step of JAX on this machine's processor.

    The model is built with its weights, and its step is compiled, which takes up to a minute.

    Args:
        config: The run.
        num_classes: The size of the classifier.

    Returns:
        `Memory`; its `step` is what XLA's program takes in addition to the state and the batch.

    Raises:
        ValueError: Keras' backend is not JAX, or the batch cannot be divided.

    Example:
        ```python
        planning.compiled_memory(Config(batch=8, model=ModelConfig("S/16"))).total / GIB
        ```
    """
    if keras.backend.backend() != "jax":
        raise ValueError(
            f"A plan for `device` cpu needs KERAS_BACKEND=jax. Received: {keras.backend.backend()}"
        )
    config = config.complete_task("classes")
    model = from_model_config(config.model, num_classes=num_classes)
    compile_model(model, config)
    state = _state(model, config, 1)
    sizes = compiled_step(model, state.images).memory_analysis()
    results = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    taken = sizes.argument_size_in_bytes + sizes.temp_size_in_bytes + results
    return state._replace(step=taken - state.state - state.batch)


def _state(model, config, devices) -> Memory:
    """Computes the memory between updates, and that of the batch."""
    optimizer = config.optimizer
    images, rest = divmod(config.batch, devices * optimizer.accumulation_steps)
    if rest:
        raise ValueError(
            "`batch` must be a multiple of devices * `optimizer.accumulation_steps`. "
            f"Received: batch={config.batch}, devices={devices}, "
            f"accumulation_steps={optimizer.accumulation_steps}"
        )
    replicas = devices if config.shard_state else 1
    moments = {"float32": 1, "bfloat16": 0.5}[optimizer.momentum_dtype]  # for each weight
    moments = 2 if optimizer.name == "adamw" else moments
    trained = sum(_bytes(variable, replicas) for variable in model.trainable_variables)
    pixels = math.prod(model.input_shape[1:]) + math.prod(model.output_shape[1:])
    return Memory(
        weights=sum(_bytes(variable, replicas) for variable in model.variables),
        moments=moments * trained,
        average=trained if optimizer.ema_decay is not None else 0,
        sums=trained if optimizer.accumulation_steps > 1 else 0,
        batch=images * pixels * FLOAT32,
        images=images,
    )


def split_bytes(holder: keras.Model | keras.layers.Layer, replicas: int) -> float:
    """Returns the bytes of all weights that `shard_state` splits over `replicas` model copies."""
    return sum(_bytes(v) for v in holder.variables if _bytes(v, replicas) < _bytes(v))


def repeated_blocks(model: keras.Model) -> list[EncoderBlock]:
    """Returns the blocks that the backward pass computes again."""
    return [x for x in model.layers if isinstance(x, EncoderBlock) and x.rematerialize]


def _bytes(variable, replicas=1):
    """Returns the bytes of a variable, or of a device's shard of it."""
    size = FLOAT32 * math.prod(variable.shape)
    split = replicas > 1 and axis_to_split(tuple(variable.shape), replicas) is not None
    return size / replicas if split else size


def _copies(model, config, replicas, itemsize):
    """Returns the bytes of kernels that are rounded or gathered for both passes.

    Rematerialized blocks round and gather their kernels again, one block at a time.
    """

    def size(holder):
        if config.model.dtype == "float32":
            return split_bytes(holder, replicas)
        return itemsize * sum(math.prod(v.shape) for v in holder.variables if len(v.shape) > 1)

    again = [size(block) for block in repeated_blocks(model)]
    return size(model) - sum(again) + max(again, default=0)
