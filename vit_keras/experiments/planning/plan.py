"""A plan: what a run will take on given devices, before it runs.

The time of an update follows the roofline model (Williams et al., 2009).
"""

import dataclasses
import math

import keras

from vit_keras.config import Config
from vit_keras.experiments.planning.devices import Device, find_device
from vit_keras.experiments.planning.memory import (
    FLOAT32,
    ITEMSIZE,
    Memory,
    compiled_memory,
    device_memory,
    repeated_blocks,
    split_bytes,
)
from vit_keras.inspection import abstract_model, flops
from vit_keras.inspection.costs import STEP
from vit_keras.layers import EncoderBlock
from vit_keras.models import from_model_config

AGAIN = 1  # forward passes that rematerialization adds to a training step
DAY, HOUR = 86_400, 3_600  # seconds
UTILIZATION = 0.4  # of the peak rate: the paper's runs reach 0.32 to 0.43 (docs/planning.md)
# What changes the program of a run such that the rules for activations do not hold.
PLAIN = {
    "distill.is_active": "distillation",
    "pretext.is_active": "a pretext",
    "lora.is_active": "adapters",
    "optimizer.freeze": "frozen layers",
    "cache_features": "cached features",
}


@dataclasses.dataclass(frozen=True)
class Communication:
    """The arrays that an update adds up or gathers over the devices, in bytes.

    Attributes:
        summed: Gradients that every device needs whole: an all-reduce.
        scattered: Gradients that each device needs its part of: a reduce-scatter.
        gathered: Weights that each device holds a part of: an all-gather.

    Example:
        >>> Communication(summed=1e9, scattered=0, gathered=0).sent(devices=4)
        1500000000.0
    """

    summed: float
    scattered: float
    gathered: float

    def sent(self, devices: int) -> float:
        """The bytes that each device sends, in a ring (Patarasuk and Yuan, 2009).

        Of n devices, each sends (n - 1) / n of an array to scatter its sum or to gather it, and
        does both for a sum that all need.
        """
        return (devices - 1) / devices * (2 * self.summed + self.scattered + self.gathered)

    def seconds(self, devices: int, device: Device) -> float:
        """The time of the messages: rings in the groups of fast links, then over the network.

        Each device of a group has the sum of its part of the array, which it sends to the devices
        of other groups that have the same part.
        """
        group = math.gcd(devices, device.group)
        passes = 2 * self.summed + self.scattered + self.gathered
        groups = devices // group
        inside = (group - 1) / group * passes / device.link
        return inside + (groups - 1) / groups * passes / group / device.network


def communication(model: keras.Model, config: Config, devices: int) -> Communication:
    """Counts what the devices send each other in an update.

    Args:
        model: The model of the run, also one without values.
        config: The run. With `optimizer.accumulation_steps`, XLA adds the gradients of each part of
            the batch up over the devices, so that an update sends as many times as much. Blocks
            that `model.rematerialize` computes again gather their weights again.
        devices: How many devices share each batch.

    Example:
        >>> model = abstract_model("B/16", image_size=224, num_classes=1000)
        >>> communication(model, Config(), devices=8).summed / 86_567_656  # bytes for each weight
        4.0
    """
    if devices == 1:
        return Communication(0, 0, 0)
    steps = config.optimizer.accumulation_steps
    gradients = FLOAT32 * sum(math.prod(v.shape) for v in model.trainable_variables)
    if not config.shard_state:
        return Communication(steps * gradients, 0, 0)
    split = split_bytes(model, devices)
    again = sum(split_bytes(block, devices) for block in repeated_blocks(model))
    return Communication(steps * (gradients - split), steps * split, steps * (split + again))


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
    `model.rematerialize` computes again take a fourth.

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


@dataclasses.dataclass(frozen=True)
class Choice:
    """A run with or without rematerialization.

    Attributes:
        rematerialize: Whether the backward pass computes the blocks' activations again.
        accumulation_steps: In how many parts a device computes its images.
        memory: What that takes on each device.
        fits: Whether the device has as much memory.
        messages: What the devices send each other in an update.
        operations: Floating-point operations of an update on each device.
        time: The time of an update, None for a device whose rates are not known.
    """

    rematerialize: bool
    accumulation_steps: int
    memory: Memory
    fits: bool
    messages: Communication
    operations: float
    time: StepTime | None


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run will take.

    Attributes:
        config: The run.
        device: The kind of its devices.
        devices: Their number.
        num_classes: The size of the classifier that was assumed.
        utilization: The share of the peak rate of products that was assumed.
        updates: The number of updates, None if it depends on a data set whose size is not known.
        choices: Without and with rematerialization.

    Example:
        >>> run = plan(read_config("pretrain/jft_h14"), "h100", devices=64, num_classes=18_291)
        >>> [round(run.days(choice), 1) for choice in run.choices]
        [1.9, 2.6]
    """

    config: Config
    device: Device
    devices: int
    num_classes: int
    utilization: float
    updates: int | None
    choices: tuple[Choice, ...]

    def images_per_second(self, choice: Choice) -> float | None:
        """The images that the input must deliver each second, for all devices together."""
        return None if choice.time is None else self.config.batch / choice.time.seconds

    def days(self, choice: Choice) -> float | None:
        """The days of all updates, without evaluations and checkpoints."""
        if choice.time is None or self.updates is None:
            return None
        return self.updates * choice.time.seconds / DAY

    def cost(self, choice: Choice, price: float) -> float | None:
        """The cost of all devices in the unit of `price`, which is for a device and an hour."""
        days = self.days(choice)
        return None if days is None else days * DAY / HOUR * self.devices * price


def plan(
    config: Config,
    device: str,
    devices: int = 1,
    num_classes: int = 1000,
    epoch_images: int | None = None,
    utilization: float = UTILIZATION,
    accumulation_steps: int | None = None,
) -> Plan:
    """Computes what a run will take, from the layers of its model, without its weights or data.

    Args:
        config: The run.
        device: A key of `DEVICES`.
        devices: How many of them share each batch, with `shard_state` also the state.
        num_classes: The size of the classifier.
        epoch_images: The training images, for a run that counts by `epochs`.
        utilization: The share of the device's peak rate that products reach, in (0, 1].
        accumulation_steps: In how many parts a device computes its images, in place of the
            field of `config.optimizer`; by default the smallest number that fits.

    Returns:
        `Plan`.

    Raises:
        ValueError: An argument is out of its range, the devices do not divide the batch, or
            there are no rules for the kind of run.

    Example:
        >>> config = Config(batch=1024, model=ModelConfig("B/16", dtype="mixed_bfloat16"))
        >>> kept, again = plan(config, "h100", devices=8).choices
        >>> kept.fits, kept.accumulation_steps, kept.memory.images
        (True, 1, 128)
    """
    row = find_device(device)
    _check(config, row, devices, utilization)
    if epoch_images is not None:
        config = config.count_steps(epoch_images)
    model = abstract_model(
        lambda: from_model_config(config.model, num_classes=num_classes, seed=config.seed)
    )
    choices = tuple(
        _choice(model, config, row, devices, utilization, again, accumulation_steps)
        for again in (False, True)
    )
    updates = config.total_steps if config.epochs is None else None
    return Plan(config, row, devices, num_classes, utilization, updates, choices)


def _check(config, device, devices, utilization):
    if devices < 1 or config.batch % devices:
        raise ValueError(
            "`devices` must be positive and divide `batch`. "
            f"Received: devices={devices}, batch={config.batch}"
        )
    if devices > 1 and device.flops is None:
        raise ValueError(f"A plan for a processor is for one device. Received: devices={devices}")
    if not 0 < utilization <= 1:
        raise ValueError(
            "`utilization`, a share of the peak rate, must be above 0 and at most 1. "
            f"Received: utilization={utilization}"
        )
    if config.distribution == "model_parallel":
        raise ValueError(
            "A plan is for `distribution` data_parallel or multi_worker, with or without "
            "`shard_state`. Received: distribution=model_parallel"
        )
    for name, kind in PLAIN.items():
        value = config
        for field in name.split("."):
            value = getattr(value, field)
        if value:
            raise ValueError(
                "A plan is for runs that train all weights of a new model on labels. "
                f"Received: a run with {kind}, in the field `{name.split('.')[0]}`"
            )
    if not config.model.is_complete:
        raise ValueError(
            "A plan needs the model's sizes, and reads no weights. Received: model.weights="
            f"{config.model.weights!r}. Give `model.variant` and `model.image_size` instead"
        )


def _choice(model, config, device, devices, utilization, rematerialize, steps) -> Choice:
    for layer in model.layers:
        if isinstance(layer, EncoderBlock):
            layer.rematerialize = rematerialize
    for count in [steps] if steps else _divisions(config, device, devices):
        optimizer = dataclasses.replace(config.optimizer, accumulation_steps=count)
        config = dataclasses.replace(config, optimizer=optimizer)
        if device.flops is None:
            repeated = dataclasses.replace(config.model, rematerialize=rematerialize)
            memory = compiled_memory(
                dataclasses.replace(config, model=repeated), model.output_shape[-1]
            )
        else:
            memory = device_memory(model, config, devices)
        if memory.total <= device.memory:
            break
    messages = communication(model, config, devices)
    operations = device_flops(model, config, devices)
    time = step_time(model, memory, messages, config, devices, device, utilization)
    fits = memory.total <= device.memory
    return Choice(rematerialize, count, memory, fits, messages, operations, time)


def _divisions(config, device, devices) -> list[int]:
    """The numbers of parts to try; a processor computes what the configuration says."""
    images = config.batch // devices
    if math.isinf(device.memory):
        return [config.optimizer.accumulation_steps]
    return [steps for steps in range(1, images + 1) if images % steps == 0]
