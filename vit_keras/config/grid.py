"""The configuration of a sweep."""

import dataclasses
from typing import Literal

from vit_keras.config.rules import Rule, check_rules

GRID_RULES: tuple[Rule, ...] = (
    ("dev_percent", lambda value: 0 < value < 100, "above 0 and below 100"),
)


@dataclasses.dataclass(frozen=True)
class GridConfig:
    """What a sweep tries.

    Attributes:
        learning_rates: rates to try, each on a development split of the training images
        seeds: seeds of the final runs, which use the best learning rate and all training images
        dev_percent: percentage of the training images that judges the trials: 10 for Pets and
            Flowers, 2 for CIFAR, 1 for ImageNet
        classifiers: classifiers to try, each with a learning rate of its own, as in the paper's
            Figure 9; empty for the model's classifier alone
    """

    learning_rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
    seeds: tuple[int, ...] = (0, 1, 2)
    dev_percent: float = 10.0
    classifiers: tuple[Literal["token", "gap", "map"], ...] = ()

    def __post_init__(self):
        if not self.learning_rates or not self.seeds:
            raise ValueError(
                "A sweep needs `grid.learning_rates` and `grid.seeds`. Received: "
                f"learning_rates={self.learning_rates}, seeds={self.seeds}"
            )
        check_rules(self, "grid", GRID_RULES)
