"""Losses and metrics of a student and its teacher, on what `models.distillation_model` puts out."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

EPSILON = 1e-6  # added to variances and to squared norms


@keras.saving.register_keras_serializable(package="vit_keras")
class Distillation(keras.losses.Loss):
    """A loss of the labels and one of the teacher's logits.

    It takes targets `(B, K)` and logits `(B, 3, K)`: those z that the labels judge, those s that
    the teacher judges, and the teacher's t. The loss of an image is (1 - w) · L(y, z) plus w times

    - "soft": T² · KL(softmax(t / T) ‖ softmax(s / T)) (arXiv 1503.02531, Section 2);
    - "hard": the cross-entropy of s with the teacher's best class (arXiv 2012.12877, Eq. 3).

    Args:
        labels: The loss L of the labels.
        kind: "soft" or "hard".
        weight: The teacher's share w.
        temperature: T, for "soft".
        **kwargs: The arguments of `keras.losses.Loss`.

    Example:
        >>> labels = keras.losses.CategoricalCrossentropy(from_logits=True)
        >>> loss = vit_keras.training.Distillation(labels, "hard", weight=0.5)
        >>> logits = np.zeros((1, 3, 2))
        >>> round(float(loss(np.array([[1.0, 0.0]]), logits)), 4)  # ln 2
        0.6931
    """

    def __init__(self, labels, kind: str, weight: float, temperature: float = 1.0, **kwargs):
        super().__init__(**kwargs)
        self.labels, self.kind = labels, kind
        self.weight, self.temperature = weight, temperature

    def call(self, y_true, y_pred):
        judged, taught, teacher = (y_pred[:, i] for i in range(3))
        loss = self.weight * TAUGHT[self.kind](teacher, taught, self.temperature)
        if self.weight < 1:
            loss = loss + (1 - self.weight) * self.labels.call(y_true, judged)
        return loss

    def get_config(self):
        labels = keras.saving.serialize_keras_object(self.labels)
        teacher = {"kind": self.kind, "weight": self.weight, "temperature": self.temperature}
        return {**super().get_config(), "labels": labels, **teacher}

    @classmethod
    def from_config(cls, config):
        labels = keras.saving.deserialize_keras_object(config.pop("labels"))
        return cls(labels, **config)


def _soft(teacher, student, temperature):
    ours, theirs = (ops.log_softmax(x / temperature, axis=-1) for x in (student, teacher))
    return temperature**2 * ops.sum(ops.exp(theirs) * (theirs - ours), axis=-1)


def _hard(teacher, student, temperature):
    best = ops.one_hot(ops.argmax(teacher, axis=-1), teacher.shape[-1], dtype=student.dtype)
    return -ops.sum(best * ops.log_softmax(student, axis=-1), axis=-1)


TAUGHT: dict[str, Callable[[Any, Any, float], Any]] = {"soft": _soft, "hard": _hard}


@keras.saving.register_keras_serializable(package="vit_keras")
class FeatureDistance(keras.losses.Loss):
    """The distance of a student's features to its teacher's.

    It takes features `(B, 2, T, D)`: the student's s, then the teacher's t. The first of the T
    vectors belongs to the whole image, the others to its patches. The loss of an image is the
    first's distance or, with patches, the mean of this and of the patches' mean distance. The
    targets are not read.

    - "cosine": 1 - s·t / (|s| |t|);
    - "mse": the mean over D of (s - (t - mean(t)) / std(t))² (as in arXiv 2205.14141).

    Args:
        distance: "cosine" or "mse".
        **kwargs: The arguments of `keras.losses.Loss`.

    Example:
        >>> loss = vit_keras.training.FeatureDistance("cosine")
        >>> features = np.array([[[[1.0, 0.0]], [[0.0, 2.0]]]])  # at a right angle
        >>> float(loss(np.zeros((1, 1)), features))
        1.0
    """

    def __init__(self, distance: str = "cosine", **kwargs):
        super().__init__(**kwargs)
        self.distance = distance

    def call(self, y_true, y_pred):
        distances = DISTANCES[self.distance](y_pred[:, 0], y_pred[:, 1])  # (B, T)
        if distances.shape[1] == 1:
            return distances[:, 0]
        return 0.5 * (distances[:, 0] + ops.mean(distances[:, 1:], axis=1))

    def get_config(self):
        return {**super().get_config(), "distance": self.distance}


def _cosine(student, teacher):
    ours, theirs = (
        x * ops.rsqrt(ops.sum(ops.square(x), axis=-1, keepdims=True) + EPSILON)
        for x in (student, teacher)
    )
    return 1 - ops.sum(ours * theirs, axis=-1)


def _mse(student, teacher):
    mean, variance = ops.moments(teacher, axes=-1, keepdims=True)
    target = (teacher - mean) * ops.rsqrt(variance + EPSILON)
    return ops.mean(ops.square(student - target), axis=-1)


DISTANCES: dict[str, Callable[[Any, Any], Any]] = {"cosine": _cosine, "mse": _mse}


def distillation_loss(config, labels: keras.losses.Loss | None) -> keras.losses.Loss:
    """Builds the loss of a `DistillConfig`.

    Args:
        config: The section `distill` of a run.
        labels: The loss of the labels; None for features, which have none.
    """
    if config.kind == "features":
        return FeatureDistance(config.distance)
    return Distillation(labels, config.kind, config.weight, config.temperature)


def distillation_metrics(config) -> list[keras.metrics.Metric]:
    """Makes the metrics of `fit`: the student's accuracy, and how often it agrees with its teacher.

    The student's logits are the mean of both heads, as after training. Features have no metrics.
    """
    if config.kind == "features":
        return []
    functions = {"accuracy": _accuracy, "agreement": _agreement}
    return [keras.metrics.MeanMetricWrapper(fn, name=name) for name, fn in functions.items()]


@keras.saving.register_keras_serializable(package="vit_keras")
def _accuracy(y_true, y_pred):
    return keras.metrics.categorical_accuracy(y_true, ops.mean(y_pred[:, :2], axis=1))


@keras.saving.register_keras_serializable(package="vit_keras")
def _agreement(y_true, y_pred):
    return keras.metrics.categorical_accuracy(y_pred[:, 2], ops.mean(y_pred[:, :2], axis=1))
