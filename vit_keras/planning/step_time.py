"""The time of an update by the roofline (Williams et al., 2009), and what a run costs."""

import dataclasses

import keras

from vit_keras.compute import flops
from vit_keras.compute.training import STEP
from vit_keras.config import Config
from vit_keras.planning.communication import Communication
from vit_keras.planning.devices import Device
from vit_keras.planning.memory import ITEMSIZE, Memory, repeated_blocks

AGAIN = 1  # forward passes that rematerialization adds to a training step


@dataclasses.dataclass(frozen=True)
class StepTime:
    """Seconds of an update on each device, of which the largest is the update's.

    The three overlap: devices send gradients while they compute others, and the memory works
    beside the products.

    Attributes:
        products: The multiply-adds, at a share of the device's peak rate.
        memory: Reading and writing its memory.
        messages: Sending and receiving.

    Example:
        >>> StepTime(products=0.2, memory=0.05, messages=0.1).bound
        'products'
    """

    products: float
    memory: float
    messages: float

    @property
    def seconds(self) -> float:
        """The time of an update."""
        return max(dataclasses.astuple(self))

    @property
    def bound(self) -> str:
        """Which of the three it is."""
        times = dataclasses.asdict(self)
        return max(times, key=lambda name: times[name])


def device_flops(model: keras.Model, config: Config, devices: int) -> float:
    """The floating-point operations of an update on each device.

    A training step is three forward passes, as in `training_exaflops`. Blocks that
    `model.rematerialise` computes again take a fourth.

    Args:
        model: The model of the run, also one without values.
        config: The run, of which `batch` counts.
        devices: How many devices share each batch.

    Example:
        >>> model = abstract_model("B/16", image_size=224, num_classes=1000)
        >>> device_flops(model, Config(batch=512), devices=8) / 1e12
        6.74...
    """
    costs = flops(model)
    again = {block.name for block in repeated_blocks(model)}
    macs = sum((STEP + AGAIN * (row.name in again)) * row.macs for row in costs.rows)
    return 2 * macs * config.batch / devices


def step_time(
    model: keras.Model,
    memory: Memory,
    messages: Communication,
    config: Config,
    devices: int,
    device: Device,
    utilization: float,
) -> StepTime | None:
    """The time of an update, or None for a device whose rates are not known.

    Args:
        model: The model of the run, also one without values.
        memory: What `device_memory` counts. Activations are written and read once, kernels read in
            the forward and the backward pass, gradients written and read, the state both.
        messages: What `communication` counts.
        config: The run.
        devices: How many devices share each batch.
        device: A value of `DEVICES`.
        utilization: The share of its peak rate that the products reach, in (0, 1].
    """
    rate = device.flops_float32 if config.model.dtype == "float32" else device.flops
    if rate is None:
        return None
    steps = config.optimizer.accumulation_steps
    kernels = ITEMSIZE[config.model.dtype] * model.count_params()
    moved = 2 * (steps * (memory.activations + kernels + memory.gradients) + memory.state)
    return StepTime(
        products=device_flops(model, config, devices) / (rate * utilization),
        memory=moved / device.bandwidth,
        messages=messages.seconds(devices, device),
    )
