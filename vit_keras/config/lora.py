"""The configuration of a run's low-rank adapters."""

import dataclasses
from typing import Literal

from vit_keras.config.rules import Rule, check_rules


@dataclasses.dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters (LoRA), which train while the weights that the run starts from stay.

    Attributes:
        rank: rank of the adapters, such as 8; null or 0 for none, which trains all weights
        alpha: scale of the adapters' product, divided by the rank; null for the rank
        layers: dense layers that get adapters, in every block
        train: names of layers that train as a whole beside the adapters, with * and ?
    """

    rank: int | None = None
    alpha: float | None = None
    layers: tuple[Literal["query", "key", "value", "out", "gate", "Dense_0", "Dense_1"], ...] = (
        "query",
        "value",
    )
    train: tuple[str, ...] = ("head*",)

    def __post_init__(self):
        check_rules(self, "lora", RULES)

    @property
    def is_active(self) -> bool:
        return bool(self.rank)


RULES: tuple[Rule, ...] = (
    ("rank", lambda value: value >= 0, "at least 1, or null for no adapters"),
    ("alpha", lambda value: value > 0, "above 0, or null for the rank"),
    ("layers", bool, "names of dense layers, such as [query, value]"),
)
