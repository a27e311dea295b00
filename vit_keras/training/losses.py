"""The losses that a run can minimize; a label or number that is NaN is unknown, and left out."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from vit_keras.tasks import CLASSES, Task


@keras.saving.register_keras_serializable(package="vit_keras")
class SigmoidCrossentropy(keras.losses.Loss):
    """The sum over classes of binary cross-entropies, as big_vision's `sigmoid_xent`.

    It compares logits `(B, C)` with targets `(B, C)` in [0, 1] and averages over the images. A
    target that is NaN adds nothing to the sum.

    Example:
        >>> loss = vit_keras.training.SigmoidCrossentropy()
        >>> round(float(loss(np.array([[1.0, 0.0]]), np.zeros((1, 2)))), 4)  # 2 ln 2
        1.3863
    """

    def call(self, y_true, y_pred):
        known, y_true = split_known(y_true)
        losses = ops.binary_crossentropy(y_true, y_pred, from_logits=True)
        return ops.sum(ops.where(known, losses, 0.0), axis=-1)


@keras.saving.register_keras_serializable(package="vit_keras")
class RegressionLoss(keras.losses.Loss):
    """The mean over an image's known numbers of a function of the error.

    It compares outputs `(B, K)` with numbers `(B, K)` and averages over the images. An image
    without any known number adds 0.

    Args:
        error: "mse" for the square, "mae" for the absolute value, or "huber" for Huber's function,
            which is half the square up to 1, and from there on the absolute value less a half.
        **kwargs: The arguments of `keras.losses.Loss`.

    Example:
        >>> loss = vit_keras.training.RegressionLoss("mae")
        >>> float(loss(np.array([[1.0, np.nan], [2.0, 0.0]]), np.array([[3.0, 9.0], [2.0, 1.0]])))
        1.25
    """

    def __init__(self, error: str = "mse", **kwargs):
        super().__init__(**kwargs)
        self.error = error

    def get_config(self):
        return {**super().get_config(), "error": self.error}

    def call(self, y_true, y_pred):
        known, y_true = split_known(y_true)
        errors = ops.where(known, ERRORS[self.error](y_pred - y_true), 0.0)
        count = ops.sum(ops.cast(known, errors.dtype), axis=-1)
        return ops.sum(errors, axis=-1) / ops.maximum(count, 1.0)


def _huber(error):
    size = ops.absolute(error)
    return ops.where(size <= 1, 0.5 * ops.square(error), size - 0.5)


ERRORS: dict[str, Callable[[Any], Any]] = {
    "mse": ops.square,
    "mae": ops.absolute,
    "huber": _huber,
}


def split_known(targets):
    """Separates which targets are known, and the targets with 0 in place of unknown ones."""
    known = ops.logical_not(ops.isnan(targets))
    return known, ops.where(known, targets, 0.0)


LOSSES: dict[str, Callable[[Any], keras.losses.Loss]] = {
    "softmax": lambda config: keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=config.label_smoothing
    ),
    "sigmoid": lambda config: SigmoidCrossentropy(),
    "mse": lambda config: RegressionLoss("mse"),
    "mae": lambda config: RegressionLoss("mae"),
    "huber": lambda config: RegressionLoss("huber"),
}


def build_loss(config, task: Task = CLASSES) -> keras.losses.Loss:
    """Builds the loss of a run's `Config`.

    Without a pretext, it compares outputs and targets, both `(B, K)`. With a pretext, it compares
    logits `(B, N, K)` with classes `(B, N)`, or predictions with targets, both `(B, N, D)`.

    Args:
        config: The `Config`; without a `loss`, the task's default is built.
        task: What the model learns.
    """
    if config.pretext.is_active:
        if config.pretext.predicts_colours:
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return keras.losses.MeanSquaredError()
    return LOSSES[config.loss or task.row.losses[0]](config)
