"""The compute that a training run took."""

import functools

import keras

from vit_keras import compute, models
from vit_keras.config import ModelConfig


def pretraining_flops(trained) -> float:
    """The floating-point operations of all updates of a run, counted as the paper's Table 6 does.

    Args:
        trained: The run, a `Trained`.
    """
    config = trained.config
    model = _abstract_model(config.model, len(trained.report["classes"]))
    return 1e18 * compute.training_exaflops(model, config.total_steps * config.batch)


@functools.cache
def _abstract_model(config: ModelConfig, num_classes: int) -> keras.Model:
    """The model of all runs that have this configuration, without the values of its weights."""
    arguments = {"num_classes": num_classes, "seed": 0}
    return compute.abstract_model(lambda: models.from_model_config(config, **arguments))
