"""Polyak's average of the weights (`ema_decay`), in the place of the weights."""

import keras
import numpy as np

from vit_keras.training.distribution import read_variable


def inner_optimizer(model: keras.Model) -> keras.optimizers.Optimizer:
    """The optimiser itself, where Keras has wrapped it to scale the loss (mixed_float16)."""
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)


def use(model: keras.Model) -> list[np.ndarray]:
    """Gives `model` the average of its weights; returns copies of the weights themselves.

    Does nothing and returns [] where the optimiser keeps no average.
    """
    optimizer = inner_optimizer(model)
    if not optimizer.use_ema:
        return []
    weights = [read_variable(v) for v in model.trainable_variables]
    put_back(model, [read_variable(v) for v in optimizer._model_variables_moving_average])
    return weights


def put_back(model: keras.Model, weights: list[np.ndarray]) -> None:
    """Assigns what `use` returned."""
    for variable, value in zip(model.trainable_variables, weights):
        variable.assign(value)
