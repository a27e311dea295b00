"""The weights that a run starts and learns from, in its configuration."""

import dataclasses
from collections.abc import Callable

from vit_keras.config.run import Config


def addresses_of(config: Config) -> list[str]:
    """The paths, names or addresses in `model.weights` and `distill.teacher`, if there are any."""
    return [path for path in (config.model.weights, config.distill.teacher) if path]


def change_addresses(config: Config, change: Callable[[str], str]) -> Config:
    """A configuration where `change` was called on each of `addresses_of`."""
    model, distill = config.model, config.distill
    if model.weights:
        model = dataclasses.replace(model, weights=change(model.weights))
    if distill.teacher:
        distill = dataclasses.replace(distill, teacher=change(distill.teacher))
    return dataclasses.replace(config, model=model, distill=distill)
