"""Estimates, before a run starts, the memory, time and cost that it needs on given devices.

The performance of devices comes from their makers' data sheets. The time of an update follows the
roofline model (Williams et al., 2009).
"""

import dataclasses
import math
from typing import Any, NamedTuple

import keras

from vit_keras.config import Config
from vit_keras.experiments.planning import memory as memories
from vit_keras.experiments.planning.memory import FLOAT32, Memory, compiled_memory, device_memory
from vit_keras.experiments.run_model import WITH_HEAD
from vit_keras.inspection import abstract_model, flops
from vit_keras.inspection.costs import STEP
from vit_keras.layers import EncoderBlock
from vit_keras.models import from_model_config
from vit_keras.support.checks import Rule, check_choice, check_defaults, check_rules

__all__ = [
    *("DEVICES", "Communication", "Device", "Memory", "Plan", "StepTime"),
    *("communication", "compiled_memory", "device_flops", "device_memory", "plan"),
]
GIB, GB, TERA = 2**30, 10**9, 10**12
NVIDIA = "https://www.nvidia.com/en-us/data-center"
TPU = "https://cloud.google.com/tpu/docs"


class Device(NamedTuple):
    """The specifications of a device that a plan needs.

    Attributes:
        name: The device's name.
        flops: Operations per second of bfloat16 products, without sparsity.
        flops_float32: The same for float32 products with JAX's default precision: TF32 on NVIDIA's
            GPUs, bfloat16 on TPUs.
        memory: Bytes.
        bandwidth: Bytes per second between the device and its memory.
        link: Bytes per second that the device sends to devices of its group, in one direction.
        group: The number of devices that the fast links connect.
        network: Bytes per second that it sends to devices of other groups, in one direction.
        source: The source of the numbers.

    Example:
        >>> DEVICES["h100"].memory / GIB
        74.5...
    """

    name: str
    flops: float | None
    flops_float32: float | None
    memory: float
    bandwidth: float
    link: float
    group: int
    network: float
    source: str


# NVIDIA states the sum of both directions of NVLink, halved here; the network is each GPU's adapter
# in its DGX. TPUs: the pod's all-reduce bandwidth divided by its chips; a chip of v3 has 2 cores.
# Google states the network bandwidth only for v5e; v3 and v4 chips are assumed to have the same.
# Columns: TFLOP/s, the same in float32, bytes, GB/s of memory, links, a group, GB/s of the network.
TABLE: tuple[tuple[Any, ...], ...] = (
    ("a100", "NVIDIA A100 SXM 80 GB", 312, 156, 80 * GB, 2039, 300, 8, 25, f"{NVIDIA}/a100"),
    ("h100", "NVIDIA H100 SXM 80 GB", 989.4, 494.7, 80 * GB, 3350, 450, 8, 50, f"{NVIDIA}/h100"),
    ("h200", "NVIDIA H200 SXM", 989.4, 494.7, 141 * GB, 4800, 450, 8, 50, f"{NVIDIA}/h200"),
    ("tpu_v3", "a core of TPU v3", 61.5, 61.5, 16 * GIB, 450, 166, 2048, 1.5625, f"{TPU}/v3"),
    ("tpu_v4", "a chip of TPU v4", 275, 275, 32 * GIB, 1200, 268, 4096, 3.125, f"{TPU}/v4"),
    ("tpu_v5e", "a chip of TPU v5e", 197, 197, 16 * GB, 819, 200, 256, 3.125, f"{TPU}/v5e"),
)
DEVICES = {
    key: Device(
        name, flops * TERA, f32 * TERA, memory, speed * GB, link * GB, group, network * GB, source
    )
    for key, name, flops, f32, memory, speed, link, group, network, source in TABLE
}
COMPILED = "XLA's analysis of the compiled step"
DEVICES["cpu"] = Device(
    "this processor by JAX", None, None, math.inf, math.inf, math.inf, 1, math.inf, COMPILED
)


AGAIN = 1  # forward passes that rematerialization adds to a training step
DAY, HOUR = 86_400, 3_600  # seconds
UTILIZATION = 0.4  # of the peak rate: the paper's runs reach 0.32 to 0.43 (docs/planning.md)
# Fields that must keep their defaults so that the rules for activations hold.
PLAIN = (
    *("distill.teacher", "pretext.objective", "lora.rank", "optimizer.freeze", "cache_features"),
    *("sweep", "folds"),
)


class Communication(NamedTuple):
    """The arrays that an update sums or gathers over the devices, in bytes.

    Attributes:
        summed: Gradients that every device needs whole: an all-reduce.
        scattered: Gradients that each device needs a shard of: a reduce-scatter.
        gathered: Weights that each device holds a shard of: an all-gather.

    Example:
        >>> Communication(summed=1e9, scattered=0, gathered=0).sent(devices=4)
        1500000000.0
    """

    summed: float
    scattered: float
    gathered: float

    def sent(self, devices: int) -> float:
        """Returns the bytes that each device sends in a ring (Patarasuk and Yuan, 2009).

        Each of n devices sends (n - 1) / n of an array to reduce-scatter or to all-gather it. An
        all-reduce takes both.
        """
        return (devices - 1) / devices * (2 * self.summed + self.scattered + self.gathered)

    def seconds(self, devices: int, device: Device) -> float:
        """Returns the time of rings in the groups of fast links, then over the network.

        After the first rings, each device has its group's sum of one shard, and sends it to the
        devices of other groups that have the same shard.
        """
        group = math.gcd(devices, device.group)
        inside = self.sent(group) / device.link
        return inside + self.sent(devices // group) / group / device.network


def communication(model: keras.Model, config: Config, devices: int) -> Communication:
    """Counts the bytes that devices send each other in an update.

    Args:
        model: The model of the run; its variables need no values.
        config: The run. With `optimizer.accumulation_steps`, XLA sums the gradients of each part of
            the batch over the devices, so an update sends that many times as much. Blocks that
            `model.rematerialize` computes again gather their weights again.
        devices: The number of devices that share each batch.

    Example:
        >>> model = abstract_model("B/16", image_size=224, num_classes=1000)
        >>> communication(model, Config(), devices=8).summed / 86_567_656  # bytes for each weight
        4.0
    """
    steps = config.optimizer.accumulation_steps
    gradients = FLOAT32 * sum(math.prod(v.shape) for v in model.trainable_variables)
    if not config.shard_state:
        return Communication(steps * gradients, 0, 0)
    split = memories.split_bytes(model, devices)
    again = sum(memories.split_bytes(block, devices) for block in memories.repeated_blocks(model))
    return Communication(steps * (gradients - split), steps * split, steps * (split + again))


class StepTime(NamedTuple):
    """Seconds that three activities take on each device; an update takes as long as the longest.

    The three overlap: devices send gradients while they compute the next ones, and memory transfers
    run alongside the products.

    Attributes:
        products: The multiply-adds at a fraction of the device's peak rate.
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
        return max(self)

    @property
    def bound(self) -> str:
        """The name of the activity that takes longest."""
        times = self._asdict()
        return max(times, key=lambda name: times[name])


def device_flops(model: keras.Model, config: Config, devices: int) -> float:
    """Returns the floating-point operations of an update on each device.

    A training step costs three forward passes, as in `training_exaflops`. Blocks that
    `model.rematerialize` computes again take a fourth one.

    Args:
        model: The model of the run; its variables need no values.
        config: The run; only `batch` matters.
        devices: The number of devices that share each batch.

    Example:
        >>> model = abstract_model("B/16", image_size=224, num_classes=1000)
        >>> device_flops(model, Config(batch=512), devices=8) / 1e12
        6.74...
    """
    costs = flops(model)
    again = {block.name for block in memories.repeated_blocks(model)}
    macs = sum((STEP + AGAIN * (row.name in again)) * row.macs for row in costs.rows)
    return 2 * macs * config.batch / devices


class Choice(NamedTuple):
    """A run with or without rematerialization.

    Attributes:
        rematerialize: Whether the backward pass computes the blocks' activations again.
        accumulation_steps: The number of parts in which a device processes its images.
        memory: The memory on each device.
        fits: Whether the device has enough memory.
        messages: The communication of the devices in an update.
        operations: Floating-point operations of an update on each device.
        time: The time of an update; None for a device with unknown rates.
    """

    rematerialize: bool
    accumulation_steps: int
    memory: Memory
    fits: bool
    messages: Communication
    operations: float
    time: StepTime | None


class Plan(NamedTuple):
    """The estimated requirements of a run.

    Attributes:
        config: The run.
        device: The kind of its devices.
        devices: Their number.
        num_classes: The assumed size of the classifier.
        utilization: The assumed fraction of the peak rate.
        updates: The number of updates; None if it depends on a data set of unknown size.
        choices: The choices without and with rematerialization.

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
        """Returns the images per second that the input must deliver to all devices together."""
        return None if choice.time is None else self.config.batch / choice.time.seconds

    def days(self, choice: Choice) -> float | None:
        """Returns the days that all updates take, without evaluations and checkpoints."""
        if choice.time is None or self.updates is None:
            return None
        return self.updates * choice.time.seconds / DAY

    def cost(self, choice: Choice, price: float) -> float | None:
        """Returns the cost of all devices, given the `price` per device and hour."""
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
    """Estimates what a run will need, based on its model's layers, without weights or data.

    Args:
        config: The run.
        device: A key of `DEVICES`.
        devices: The number of devices that share each batch and, with `shard_state`, the state.
        num_classes: The size of the classifier.
        epoch_images: The number of training images, for a run that counts by `epochs`.
        utilization: The fraction of the device's peak rate that products reach, in (0, 1].
        accumulation_steps: The number of parts in which a device processes its images, instead of
            `config.optimizer.accumulation_steps`; by default the smallest number that fits.

    Returns:
        `Plan`.

    Raises:
        ValueError: An argument is out of range, the devices do not divide the batch, or there are
            no rules for this kind of run.

    Example:
        >>> config = Config(batch=1024, model=ModelConfig("B/16", dtype="mixed_bfloat16"))
        >>> kept, again = plan(config, "h100", devices=8).choices
        >>> kept.fits, kept.accumulation_steps, kept.memory.images
        (True, 1, 128)
    """
    check_choice(device, DEVICES, "device")
    row = DEVICES[device]
    _check(config, row, devices, utilization)
    if epoch_images is not None:
        config = config.count_steps(epoch_images)
    model = abstract_model(lambda: _planned_model(config, num_classes))
    updates = config.total_steps if config.epochs is None else None
    whole = Plan(config, row, devices, num_classes, utilization, updates, ())
    choices = tuple(_choice(whole, model, again, accumulation_steps) for again in (False, True))
    return whole._replace(choices=choices)


def _planned_model(config, num_classes):
    with_head = WITH_HEAD.get(config.task)
    classes = None if with_head else num_classes
    model = from_model_config(config.model, num_classes=classes, seed=config.seed)
    return with_head(model, num_classes, config) if with_head else model


def _check(config, device, devices, utilization):
    """Refuses runs that no rule covers. On a CPU, a run has one device and a plain head."""
    on_processor = device.flops is None
    check_defaults(config, PLAIN, "a plan, which covers one run that trains all weights on labels")
    is_covered = lambda name: name != "model_parallel"
    is_plain = lambda task: not (on_processor and task in WITH_HEAD)
    rules: list[Rule] = [
        ("distribution", is_covered, "data_parallel or multi_worker for a plan"),
        ("task", is_plain, "classes, labels or numbers for a plan on a CPU"),
    ]
    check_rules(config, None, rules)
    if not config.model.is_complete:
        raise ValueError(
            "A plan needs the model's sizes, and reads no weights. Received: model.weights="
            f"{config.model.weights!r}. Give `model.variant` and `model.image_size` instead"
        )
    if not 0 < utilization <= 1 or (on_processor and devices > 1):
        raise ValueError(
            "A plan needs a `utilization` above 0 and at most 1, and a single device if that is a "
            f"CPU. Received: utilization={utilization}, devices={devices}"
        )


def _choice(whole, model, rematerialize, steps) -> Choice:
    config, device, devices = whole.config, whole.device, whole.devices
    dtype = config.model.dtype
    for layer in model.layers:
        if isinstance(layer, EncoderBlock):
            layer.rematerialize = rematerialize
    images = config.batch // devices
    divisions = [count for count in range(1, images + 1) if images % count == 0]
    if device.flops is None:  # a processor; its memory follows from the compiled program
        divisions = [config.optimizer.accumulation_steps]
    for count in [steps] if steps else divisions:
        optimizer = dataclasses.replace(config.optimizer, accumulation_steps=count)
        repeated = dataclasses.replace(config.model, rematerialize=rematerialize)
        config = dataclasses.replace(config, optimizer=optimizer, model=repeated)
        if device.flops is None:
            memory = compiled_memory(config, model.output_shape[-1])
        else:
            memory = device_memory(model, config, devices)
        if memory.total <= device.memory:
            break
    messages = communication(model, config, devices)
    operations = device_flops(model, config, devices)
    rate, time = device.flops_float32 if dtype == "float32" else device.flops, None
    if rate is not None:
        # Activations, gradients and the state are written and read once; kernels are read in the
        # forward and the backward pass.
        kernels = memories.ITEMSIZE[dtype] * model.count_params()
        moved = 2 * (count * (memory.activations + kernels + memory.gradients) + memory.state)
        seconds = messages.seconds(devices, device)
        products = operations / (rate * whole.utilization)
        time = StepTime(products, moved / device.bandwidth, seconds)
    fits = memory.total <= device.memory
    return Choice(rematerialize, count, memory, fits, messages, operations, time)
