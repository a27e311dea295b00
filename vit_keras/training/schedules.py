"""The schedules of the learning rate in the paper (Tables 3 and 4) and in BiT."""

import math

import keras
from keras import ops

STAIRS = (30, 60, 90)  # percent of the updates, at which "staircase" divides the rate by 10


@keras.saving.register_keras_serializable(package="vit_keras")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Warms the rate up from 0 linearly, then decays it to 0 or in stairs.

    At update t, the rate is learning_rate · f(p) · min(1, t / warmup_steps), as in the published
    code. p goes from 0 to 1 over the updates after the warmup.

    Args:
        learning_rate: The highest rate, per update.
        total_steps: The number of updates of the run.
        warmup_steps: The number of updates over which the rate rises.
        decay_type: "cosine", where f(p) = (1 + cos πp) / 2; "linear", where f(p) = 1 - p; or
            "staircase", where f is divided by 10 at 30, 60 and 90 % of all updates (BiT's
            HyperRule, arXiv 1912.11370, Section 3.3).

    Example:
        >>> schedule = vit_keras.training.WarmupDecay(0.5, total_steps=100, warmup_steps=20)
        >>> [round(float(schedule(step)), 6) for step in (0, 10, 20, 60, 100)]
        [0.0, 0.25, 0.5, 0.25, 0.0]
    """

    def __init__(
        self, learning_rate: float, total_steps: int, warmup_steps: int = 0, decay_type="cosine"
    ):
        self.learning_rate, self.total_steps = learning_rate, total_steps
        self.warmup_steps, self.decay_type = warmup_steps, decay_type

    def __call__(self, step):
        step = ops.cast(step, "float32")
        if self.decay_type == "staircase":
            return self._warmed(step, self.learning_rate * self._stairs(step))
        progress = (step - self.warmup_steps) / max(self.total_steps - self.warmup_steps, 1)
        progress = ops.clip(progress, 0.0, 1.0)
        decay = {"cosine": lambda p: 0.5 * (1 + ops.cos(math.pi * p)), "linear": lambda p: 1 - p}
        return self._warmed(step, self.learning_rate * decay[self.decay_type](progress))

    def _stairs(self, step):
        first = (math.ceil(share * self.total_steps / 100) for share in STAIRS)
        return 10.0 ** -sum(ops.cast(step >= update, "float32") for update in first)

    def _warmed(self, step, rate):
        return rate * ops.minimum(1.0, step / self.warmup_steps) if self.warmup_steps else rate

    def get_config(self):
        return {
            "learning_rate": self.learning_rate,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            "decay_type": self.decay_type,
        }
