"""Polyak's average of the weights (`ema_decay`), used as the weights of the model."""

import keras
import numpy as np

from vit_keras.keras_internals import averages_of
from vit_keras.training.distribution import read_variable


def inner_optimizer(model: keras.Model) -> keras.optimizers.Optimizer:
    """Returns the optimizer itself, without the loss scaling that mixed_float16 puts around it."""
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)


def use(model: keras.Model) -> list[np.ndarray]:
    """Replaces the trainable weights of `model` by their average.

    Returns:
        Copies of the weights, for `put_back`; [] if the optimizer keeps no average, in which case
        the weights stay as they are.
    """
    optimizer = inner_optimizer(model)
    if not optimizer.use_ema:
        return []
    weights = [read_variable(v) for v in model.trainable_variables]
    put_back(model, [read_variable(v) for v in averages_of(optimizer)])
    return weights


def put_back(model: keras.Model, weights: list[np.ndarray]) -> None:
    """Assigns the weights that `use` returned."""
    for variable, value in zip(model.trainable_variables, weights):
        variable.assign(value)
