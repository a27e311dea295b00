"""The metrics that `fit` reports for masks; pixels without a class, 255, are left out."""

import keras
from keras import ops

from vit_keras.tasks import VOID


class _PixelMetric(keras.metrics.Metric):
    """Counts the pixels of each class that are right, true and predicted.

    Args:
        num_classes: K.
        name: The metric's name.
        **kwargs: The arguments of `keras.metrics.Metric`.
    """

    def __init__(self, num_classes: int, name=None, **kwargs):
        super().__init__(name=name, **kwargs)
        self.num_classes = num_classes
        self.counts = self.add_variable((3, num_classes), initializer="zeros", name="counts")

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes}

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch of masks `(B, H, W)` and logits `(B, H, W, K)`, with weights `(B,)`."""
        true = ops.cast(y_true, "int32")
        weights = ops.cast(true != VOID, self.dtype)
        if sample_weight is not None:
            weights = weights * ops.reshape(ops.cast(sample_weight, self.dtype), (-1, 1, 1))
        true = ops.reshape(ops.minimum(true, self.num_classes - 1), (-1,))
        predicted = ops.reshape(ops.cast(ops.argmax(y_pred, axis=-1), "int32"), (-1,))
        weights = ops.reshape(weights, (-1,))
        right = weights * ops.cast(true == predicted, self.dtype)
        count = lambda values, places: ops.segment_sum(values, places, self.num_classes)
        added = [count(right, true), count(weights, true), count(weights, predicted)]
        self.counts.assign(self.counts + ops.stack(added))


@keras.saving.register_keras_serializable(package="vit_keras")
class MeanIoU(_PixelMetric):
    """The mean over classes of the intersection over the union of true and predicted pixels.

    A class that is neither true nor predicted anywhere is left out.
    """

    def __init__(self, num_classes: int, name="miou", **kwargs):
        super().__init__(num_classes, name, **kwargs)

    def result(self):
        right, true, predicted = (self.counts[i] for i in range(3))
        union = true + predicted - right
        present = ops.cast(union > 0, self.dtype)
        return ops.sum(right / ops.maximum(union, 1e-12)) / ops.maximum(ops.sum(present), 1.0)


@keras.saving.register_keras_serializable(package="vit_keras")
class PixelAccuracy(_PixelMetric):
    """The share of pixels whose class is right."""

    def __init__(self, num_classes: int, name="pixel_accuracy", **kwargs):
        super().__init__(num_classes, name, **kwargs)

    def result(self):
        right, true = ops.sum(self.counts[0]), ops.sum(self.counts[1])
        return right / ops.maximum(true, 1e-12)
