"""The memory that a training step takes on one device."""

import dataclasses
import math

import keras

from vit_keras.config import Config
from vit_keras.layers import EncoderBlock
from vit_keras.planning.kept import FLOAT32, FUSED, Kept, Part, Program, kept
from vit_keras.training.distribution.on_jax import axis_to_split

ITEMSIZE = {"float32": 4, "mixed_bfloat16": 2, "mixed_float16": 2}


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on each device at the fullest moment of a training step.

    Attributes:
        weights: The weights in float32, or the device's part of them.
        moments: The moments of the optimizer.
        average: Polyak's average of the weights.
        sums: The sums of the gradients of a batch that is computed in parts.
        batch: The images and targets that are computed at a time.
        copies: Kernels as the layers read them: rounded to the type of the products, or gathered
            from the other devices where the state is split.
        activations: What the forward pass keeps for the backward pass.
        gradients: The gradients that are held until the update.
        step: The most that copies, activations, gradients and what a layer's backward pass
            computes with take at once. At the beginning of the backward pass there are few
            gradients, at its end few activations, so this is less than their sum.
        images: The images that a device computes at a time.

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
    copies: float
    activations: float
    gradients: float
    step: float
    images: int

    @property
    def state(self) -> float:
        """What stays from update to update."""
        return self.weights + self.moments + self.average + self.sums

    @property
    def total(self) -> float:
        """The state, the batch and the step."""
        return self.state + self.batch + self.step


def device_memory(
    model: keras.Model, config: Config, devices: int = 1, program: Program = FUSED
) -> Memory:
    """Computes the memory that training takes on each device.

    Args:
        model: The model of the run, also one without values.
        config: The run, of which `batch`, `optimizer`, `shard_state` and `model.dtype` count.
        devices: How many devices share each batch.
        program: How activations are kept, a value of `PROGRAMS`.

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
        >>> on_a_processor = device_memory(model, config, 8, PROGRAMS["xla_cpu"]).activations
        >>> round(on_a_processor / device_memory(model, config, 8).activations, 1)
        2.1
    """
    images, optimizer = images_at_a_time(config, devices), config.optimizer
    itemsize = FLOAT32 if program.computes_in_float32 else ITEMSIZE[config.model.dtype]
    rows = list(kept(model, Part(images, itemsize, devices > 1), program))
    replicas = devices if config.shard_state else 1
    trained = sum(_bytes(variable, replicas) for variable in model.trainable_variables)
    pixels = math.prod(model.input_shape[1:]) + math.prod(model.output_shape[1:])
    copies = _copies(model, config, replicas, itemsize, program)
    holds = devices > 1 or optimizer.grad_norm_clip is not None
    return Memory(
        weights=sum(_bytes(variable, replicas) for variable in model.variables),
        moments=_moments(optimizer) * trained,
        average=trained if optimizer.ema_decay is not None else 0,
        sums=trained if optimizer.accumulation_steps > 1 else 0,
        batch=images * pixels * FLOAT32,
        copies=copies,
        activations=sum(row.between for row in rows),
        gradients=(sum if holds else max)(row.gradients for row in rows),
        step=max(copies + _backward(rows, holds), _update(rows, devices, program)),
        images=images,
    )


def images_at_a_time(config: Config, devices: int) -> int:
    """The images that each device computes at a time.

    Raises:
        ValueError: The devices and `accumulation_steps` do not divide the batch.
    """
    steps = config.optimizer.accumulation_steps
    if devices < 1 or config.batch % (devices * steps):
        raise ValueError(
            "`batch` must be a multiple of the devices times `optimizer.accumulation_steps`. "
            f"Received: batch={config.batch}, devices={devices}, accumulation_steps={steps}"
        )
    return config.batch // (devices * steps)


def split_bytes(holder: keras.Model | keras.layers.Layer, replicas: int) -> float:
    """The bytes of all weights that `shard_state` splits over that many copies of the model."""
    return sum(_bytes(v) for v in holder.variables if _bytes(v, replicas) < _bytes(v))


def repeated_blocks(model: keras.Model) -> list[EncoderBlock]:
    """The blocks that the backward pass computes again, if the program can."""
    return [
        layer for layer in model.layers if isinstance(layer, EncoderBlock) and layer.rematerialise
    ]


def _bytes(variable, replicas=1):
    """The bytes of a variable, or of a device's part of it."""
    size = FLOAT32 * math.prod(variable.shape)
    split = replicas > 1 and axis_to_split(tuple(variable.shape), replicas) is not None
    return size / replicas if split else size


def _moments(optimizer):
    """The bytes of the moments for each byte of a trained weight."""
    if optimizer.name == "adamw":
        return 2
    return 0.5 if optimizer.momentum_dtype == "bfloat16" else 1


def _copies(model, config, replicas, itemsize, program):
    """The bytes of kernels that are rounded or gathered for the forward and backward passes.

    A block that is computed again rounds and gathers its kernels again, one block at a time.
    """

    def size(holder):
        if config.model.dtype == "float32":
            return split_bytes(holder, replicas)
        return itemsize * sum(math.prod(v.shape) for v in holder.variables if len(v.shape) > 1)

    again = [size(block) for block in repeated_blocks(model)] if program.drops else []
    return size(model) - sum(again) + max(again, default=0)


def _backward(rows: list[Kept], holds: bool) -> float:
    """The most that activations and gradients take, layer by layer from the last to the first."""
    activations, gradients, most = sum(row.between for row in rows), 0.0, 0.0
    for row in reversed(rows):
        again = row.bytes - row.between  # what the backward pass computes a second time
        most = max(most, activations + again + row.workspace + gradients + row.gradients)
        activations -= row.between
        gradients += row.gradients if holds else 0
    return most


def _update(rows: list[Kept], devices: int, program: Program) -> float:
    """The gradients before the update; XLA:CPU adds those of all devices up in new memory."""
    gradients = sum(row.gradients for row in rows)
    return 2 * gradients if devices > 1 and program.sums_in_new_memory else 0
