"""The metrics that `fit` reports for each kind of label; unknown targets, NaN, are left out."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from vit_keras.tasks import Task
from vit_keras.training.losses import split_known
from vit_keras.training.mask_metrics import MeanIoU, PixelAccuracy

BINS = 200  # of the probability; more would tell apart what differs by less than half a percent


def _weights(known, sample_weight, dtype):
    """The weight of each target `(B, K)`: 0 if it is unknown, otherwise its image's."""
    weights = ops.cast(known, dtype)
    if sample_weight is None:
        return weights
    return weights * ops.reshape(ops.cast(sample_weight, dtype), (-1, 1))


def _mean_where(present, values):
    """The mean of the values that are present; 0 if none is."""
    present = ops.cast(present, values.dtype)
    return ops.sum(values * present) / ops.maximum(ops.sum(present), 1.0)


@keras.saving.register_keras_serializable(package="vit_keras")
class AveragePrecision(keras.metrics.Metric):
    """The mean over labels of the average precision, from a histogram of the probabilities.

    Probabilities in one of the 200 bins count as equal, so the result may differ a little from
    `evaluation.report`'s, which sorts them. A label without a known positive is left out.

    Args:
        num_labels: K.
        name: The metric's name.
        **kwargs: The arguments of `keras.metrics.Metric`.
    """

    def __init__(self, num_labels: int, name="average_precision", **kwargs):
        super().__init__(name=name, **kwargs)
        self.num_labels = num_labels
        shape = (2, num_labels * BINS)  # negatives and positives
        self.counts = self.add_variable(shape, initializer="zeros", name="counts")

    def get_config(self):
        return {**super().get_config(), "num_labels": self.num_labels}

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch of targets `(B, K)` and logits `(B, K)`, with weights `(B,)`."""
        known, y_true = split_known(ops.cast(y_true, self.dtype))
        probabilities = ops.sigmoid(ops.cast(y_pred, self.dtype))
        bins = ops.minimum(ops.cast(ops.floor(probabilities * BINS), "int32"), BINS - 1)
        place = ops.reshape(bins + BINS * ops.arange(self.num_labels, dtype="int32"), (-1,))
        weights = _weights(known, sample_weight, self.dtype)
        added = [
            ops.segment_sum(ops.reshape(weights * share, (-1,)), place, self.num_labels * BINS)
            for share in (1 - y_true, y_true)
        ]
        self.counts.assign(self.counts + ops.stack(added))

    def result(self):
        counts = ops.flip(ops.reshape(self.counts, (2, -1, BINS)), axis=-1)
        positives = counts[1]
        above = ops.cumsum(positives, axis=-1)  # from the highest probability down
        all_above = above + ops.cumsum(counts[0], axis=-1)
        precision = above / ops.maximum(all_above, 1e-12)
        total = above[:, -1]
        each = ops.sum(precision * positives, axis=-1) / ops.maximum(total, 1e-12)
        return _mean_where(total > 0, each)


@keras.saving.register_keras_serializable(package="vit_keras")
class R2(keras.metrics.Metric):
    """The mean over numbers of the coefficient of determination, 1 - Σ(y - ŷ)² / Σ(y - ȳ)².

    Args:
        num_outputs: K.
        name: The metric's name.
        **kwargs: The arguments of `keras.metrics.Metric`.
    """

    def __init__(self, num_outputs: int, name="r2", **kwargs):
        super().__init__(name=name, **kwargs)
        self.num_outputs = num_outputs
        self.sums = self.add_variable((4, num_outputs), initializer="zeros", name="sums")

    def get_config(self):
        return {**super().get_config(), "num_outputs": self.num_outputs}

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch of numbers `(B, K)` and outputs `(B, K)`, with weights `(B,)`."""
        known, y = split_known(ops.cast(y_true, self.dtype))
        weights = _weights(known, sample_weight, self.dtype)
        error = ops.square(y - ops.cast(y_pred, self.dtype))
        terms = [ops.ones_like(y), y, ops.square(y), error]
        added = [ops.sum(weights * term, axis=0) for term in terms]
        self.sums.assign(self.sums + ops.stack(added))

    def result(self):
        count, total, squares, errors = (self.sums[i] for i in range(4))
        spread = squares - ops.square(total) / ops.maximum(count, 1e-12)
        each = 1 - errors / ops.maximum(spread, 1e-12)
        return _mean_where(spread > 0, each)


METRICS: dict[str, Callable[[int], Any]] = {
    "classes": lambda outputs: "accuracy",
    "labels": AveragePrecision,
    "numbers": R2,
    "masks": lambda outputs: [MeanIoU(outputs), PixelAccuracy(outputs)],
}


def task_metrics(task: Task, outputs: int) -> list:
    """Returns the metrics of `fit` for a task with K `outputs`, as `compile` takes them."""
    metrics = METRICS[task.kind](outputs)
    return metrics if isinstance(metrics, list) else [metrics]
