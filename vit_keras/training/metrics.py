"""The metrics of each kind of label; unknown targets, NaN, are left out."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from vit_keras.tasks import Task
from vit_keras.training.losses import split_known
from vit_keras.training.mask_metrics import MeanIoU, PixelAccuracy


def _weights(known, sample_weight, dtype):
    """The weight of each target `(B, K)`: 0 if it is unknown, otherwise its image's."""
    weights = ops.cast(known, dtype)
    if sample_weight is None:
        return weights
    return weights * ops.reshape(ops.cast(sample_weight, dtype), (-1, 1))


@keras.saving.register_keras_serializable(package="vit_keras")
class R2(keras.metrics.Metric):
    """The mean over numbers of the coefficient of determination, 1 - Σ(y - ŷ)² / Σ(y - ȳ)².

    Args:
        num_outputs: K.
        center: What is subtracted from all numbers before they are squared, so that float32 holds
            their sums. It should lie near their mean, and be the same in all replicas. None takes
            the mean of the first batch in which a number is known.
        name: The metric's name.
        **kwargs: The arguments of `keras.metrics.Metric`.
    """

    def __init__(self, num_outputs: int, center: float | None = None, name="r2", **kwargs):
        super().__init__(name=name, **kwargs)
        self.num_outputs, self.center = num_outputs, center
        self.sums = self.add_variable((4, num_outputs), initializer="zeros", name="sums")
        if center is None:
            self.first_mean = self.add_variable((num_outputs,), "zeros", name="first_mean")

    def get_config(self):
        return {**super().get_config(), "num_outputs": self.num_outputs, "center": self.center}

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch of numbers `(B, K)` and outputs `(B, K)`, with weights `(B,)`."""
        known, y = split_known(ops.cast(y_true, self.dtype))
        weights = _weights(known, sample_weight, self.dtype)
        error = ops.square(y - ops.cast(y_pred, self.dtype))
        y = y - self._center(weights, y)
        terms = [ops.ones_like(y), y, ops.square(y), error]
        added = [ops.sum(weights * term, axis=0) for term in terms]
        self.sums.assign(self.sums + ops.stack(added))

    def _center(self, weights, y):
        """`center`, or the mean of the first batch with known numbers."""
        if self.center is not None:
            return self.center
        mean = ops.sum(weights * y, axis=0) / ops.maximum(ops.sum(weights, axis=0), 1e-12)
        mean = ops.where(self.sums[0] > 0, ops.convert_to_tensor(self.first_mean), mean)
        self.first_mean.assign(mean)
        return mean

    def result(self):
        count, total, squares, errors = (self.sums[i] for i in range(4))
        spread = squares - ops.square(total) / ops.maximum(count, 1e-12)
        each = 1 - errors / ops.maximum(spread, 1e-12)
        present = ops.cast(spread > 0, each.dtype)  # 0 if none is
        return ops.sum(each * present) / ops.maximum(ops.sum(present), 1.0)


METRICS: dict[str, Callable[[int], Any]] = {
    "classes": lambda outputs: ["accuracy"],
    "labels": lambda outputs: [],  # `EvaluateLabels` adds it to the figures of held-out images
    "numbers": lambda outputs: [R2(outputs, center=0.0)],  # of standardized numbers
    "masks": lambda outputs: [MeanIoU(outputs), PixelAccuracy(outputs)],
}


def task_metrics(task: Task, outputs: int) -> list:
    """Returns the metrics of `fit` for a task with K `outputs`, as `compile` takes them."""
    return METRICS[task.kind](outputs)
