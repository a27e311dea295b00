"""What the devices of a run send each other in an update."""

import dataclasses
import math

import keras

from vit_keras.config import Config
from vit_keras.planning.devices import Device
from vit_keras.planning.kept import FLOAT32
from vit_keras.planning.memory import repeated_blocks, split_bytes


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
            that `model.rematerialise` computes again gather their weights again.
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
