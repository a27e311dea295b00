"""The configuration of a run's optimizer."""

import dataclasses
from typing import Literal

from vit_keras.config.rules import Rule, check_rules


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and its learning rate.

    Attributes:
        name: adamw, or sgd with momentum
        learning_rate: peak of the schedule, for each update
        weight_decay: decoupled decay of kernels, multiplied by the learning rate; big_vision's
            values are not, so divide them by the base rate
        beta_1: decay of the first moment of adamw
        beta_2: decay of the second moment of adamw
        momentum: momentum of sgd
        decay_type: decay of the learning rate from the warmup to 0 at total_steps; staircase
            divides it by 10 at 30, 60 and 90 % (BiT)
        warmup_steps: updates over which the learning rate grows linearly from 0
        warmup_fraction: the same as a fraction of all updates; null to count by warmup_steps
        grad_norm_clip: largest global norm of the gradients; null for no limit
        momentum_dtype: dtype of sgd's momentum; bfloat16 as published for fine-tuning
        accumulation_steps: parts of a batch that are computed one after the other
        ema_decay: decay of Polyak's average of the weights, 0.9999 in Table 2; null for none
        layer_decay: factor by which learning rates fall from block to block, from the head down;
            null for none
        freeze: names of layers that do not train, with * and ?; "[!h]*" trains the head alone, a
            linear probe
    """

    name: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    beta_1: float = 0.9
    beta_2: float = 0.999
    momentum: float = 0.9
    decay_type: Literal["cosine", "linear", "staircase"] = "cosine"
    warmup_steps: int = 0
    warmup_fraction: float | None = None
    grad_norm_clip: float | None = 1.0
    momentum_dtype: Literal["float32", "bfloat16"] = "float32"
    accumulation_steps: int = 1
    ema_decay: float | None = None
    layer_decay: float | None = None
    freeze: tuple[str, ...] = ()

    def __post_init__(self):
        check_rules(self, "optimizer", RULES)
        if self.warmup_steps and self.warmup_fraction is not None:
            raise ValueError(
                "Only one of `optimizer.warmup_steps` and `optimizer.warmup_fraction` may be "
                f"given. Received: {self.warmup_steps} and {self.warmup_fraction}"
            )

    def warmup(self, total_steps: int) -> int:
        """The updates of the warmup in a run of `total_steps` updates."""
        if self.warmup_fraction is None:
            return self.warmup_steps
        return round(self.warmup_fraction * total_steps)


RULES: tuple[Rule, ...] = (
    ("learning_rate", lambda value: value > 0, "above 0"),
    ("weight_decay", lambda value: value >= 0, "at least 0"),
    ("beta_1", lambda value: 0 <= value < 1, "at least 0 and below 1"),
    ("beta_2", lambda value: 0 <= value < 1, "at least 0 and below 1"),
    ("momentum", lambda value: 0 <= value < 1, "at least 0 and below 1"),
    ("warmup_steps", lambda value: value >= 0, "at least 0"),
    ("warmup_fraction", lambda value: 0 <= value < 1, "at least 0 and below 1, or null"),
    ("grad_norm_clip", lambda value: value > 0, "above 0, or null for no limit"),
    ("accumulation_steps", lambda value: value >= 1, "at least 1"),
    ("ema_decay", lambda value: 0 < value < 1, "above 0 and below 1, or null for no average"),
    ("layer_decay", lambda value: 0 < value <= 1, "above 0 and at most 1, or null for none"),
)
