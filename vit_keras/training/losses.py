"""The losses that a run can minimize. Unknown labels and numbers are NaN, and are left out."""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from vit_keras.layers.base import Configured
from vit_keras.layers.common import check_choice
from vit_keras.support.tasks import CLASSES, VOID, Task
from vit_keras.training.set_prediction import SetPrediction


@keras.saving.register_keras_serializable(package="vit_keras")
class ComputedLoss(keras.losses.Loss):
    """The loss of a model that computes it itself, as the first number of each output `(B, n)`.

    Example:
        >>> outputs = np.array([[2.0, 0.1], [4.0, 0.3]])
        >>> float(vit_keras.training.ComputedLoss()(np.zeros((2, 2)), outputs))
        3.0
    """

    def call(self, y_true, y_pred):
        return y_pred[:, 0]


@keras.saving.register_keras_serializable(package="vit_keras")
class SigmoidCrossentropy(Configured, keras.losses.Loss):
    """The sum over classes of binary cross-entropies, like big_vision's `sigmoid_xent`.

    It compares logits `(B, C)` with targets `(B, C)` in [0, 1] and averages over the images. NaN
    targets add nothing to the sum.

    Args:
        gamma: The exponent of the focal loss (arXiv 1708.02002, Eq. 4). Each term is multiplied by
            (1 − p)^γ, where p is the probability of the right answer.
        positive_weights: C factors for the terms of positives; None for 1.
        **kwargs: The arguments of `keras.losses.Loss`.

    Example:
        >>> loss = vit_keras.training.SigmoidCrossentropy()
        >>> round(float(loss(np.array([[1.0, 0.0]]), np.zeros((1, 2)))), 4)  # 2 ln 2
        1.3863
    """

    def __init__(self, gamma: float = 0.0, positive_weights=None, **kwargs):
        super().__init__(**kwargs)
        self.gamma, self.positive_weights = gamma, positive_weights

    def call(self, y_true, y_pred):
        known, y_true = split_known(y_true)
        losses = ops.binary_crossentropy(y_true, y_pred, from_logits=True)
        if self.gamma:
            probabilities = ops.sigmoid(y_pred)
            wrong = y_true * (1 - probabilities) + (1 - y_true) * probabilities
            losses = losses * _focus(wrong, self.gamma)
        if self.positive_weights is not None:
            weights = ops.convert_to_tensor(self.positive_weights, losses.dtype)
            losses = losses * (1 + y_true * (weights - 1))
        return ops.sum(ops.where(known, losses, 0.0), axis=-1)


@keras.saving.register_keras_serializable(package="vit_keras")
class RareClassCrossentropy(Configured, keras.losses.Loss):
    """Softmax cross-entropy for classes of unequal sizes, with one or more of three remedies.

    It compares logits `(B, C)` with targets `(B, C)` and averages over the images.

    Args:
        log_shares: The C logarithms of the classes' fractions of the training images. They are
            added to the logits in training (logit adjustment, arXiv 2007.07314, Eq. 10), so that
            the logits without them suit classes of equal sizes.
        weights: C factors for the losses of the classes' images.
        gamma: The exponent of the focal loss (arXiv 1708.02002, Eq. 4).
        label_smoothing: The probability that is spread over all classes.
        **kwargs: The arguments of `keras.losses.Loss`.

    Example:
        >>> loss = vit_keras.training.RareClassCrossentropy(weights=[1.0, 3.0])
        >>> round(float(loss(np.array([[0.0, 1.0]]), np.zeros((1, 2)))), 4)  # 3 ln 2
        2.0794
    """

    def __init__(self, log_shares=None, weights=None, gamma=0.0, label_smoothing=0.0, **kwargs):
        super().__init__(**kwargs)
        self.log_shares, self.weights, self.gamma = log_shares, weights, gamma
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        tensor = lambda values: ops.convert_to_tensor(values, y_pred.dtype)
        if self.log_shares is not None:
            y_pred = y_pred + tensor(self.log_shares)
        smoothed = self.label_smoothing / y_true.shape[-1] + (1 - self.label_smoothing) * y_true
        logs = ops.log_softmax(y_pred, axis=-1)
        terms = smoothed * logs
        if self.gamma:
            terms = terms * _focus(1 - ops.exp(logs), self.gamma)
        losses = -ops.sum(terms, axis=-1)
        if self.weights is not None:
            losses = losses * ops.sum(y_true * tensor(self.weights), axis=-1)
        return losses


@keras.saving.register_keras_serializable(package="vit_keras")
class RegressionLoss(Configured, keras.losses.Loss):
    """The mean of a function of the error, over an image's known numbers.

    It compares outputs `(B, K)` with numbers `(B, K)` and averages over the images. An image
    without known numbers adds 0.

    Args:
        error: "mse" for the square, "mae" for the absolute value, or "huber" for Huber's function,
            which is half the square up to 1, and beyond that the absolute value minus a half.
        **kwargs: The arguments of `keras.losses.Loss`.

    Example:
        >>> loss = vit_keras.training.RegressionLoss("mae")
        >>> float(loss(np.array([[1.0, np.nan], [2.0, 0.0]]), np.array([[3.0, 9.0], [2.0, 1.0]])))
        1.25
    """

    def __init__(self, error: str = "mse", **kwargs):
        super().__init__(**kwargs)
        self.error = error

    def call(self, y_true, y_pred):
        known, y_true = split_known(y_true)
        errors = ops.where(known, ERRORS[self.error](y_pred - y_true), 0.0)
        count = ops.sum(ops.cast(known, errors.dtype), axis=-1)
        return ops.sum(errors, axis=-1) / ops.maximum(count, 1.0)


@keras.saving.register_keras_serializable(package="vit_keras")
class PixelCrossentropy(keras.losses.Loss):
    """The softmax cross-entropy, averaged over each image's pixels, then over the images.

    It compares logits `(B, H, W, K)` with class indices `(B, H, W)`. Pixels with index 255 have no
    class and are left out; an image with only such pixels adds 0.

    Example:
        >>> loss = vit_keras.training.PixelCrossentropy()
        >>> mask = np.array([[[0, 255]]])  # one image of two pixels
        >>> round(float(loss(mask, np.zeros((1, 1, 2, 4)))), 4)  # ln 4
        1.3863
    """

    def call(self, y_true, y_pred):
        y_true = ops.cast(y_true, "int32")
        known = ops.cast(y_true != VOID, y_pred.dtype)
        classes = ops.minimum(y_true, y_pred.shape[-1] - 1)
        losses = known * ops.sparse_categorical_crossentropy(classes, y_pred, from_logits=True)
        pixels = ops.sum(known, axis=(1, 2))
        return ops.sum(losses, axis=(1, 2)) / ops.maximum(pixels, 1.0)


def _focus(wrong, gamma):
    """(1 − p)^γ; its slope stays finite where p rounds to 1, even for γ below 1."""
    return ops.power(ops.maximum(wrong, 1e-30), gamma)


def _huber(error):
    size = ops.absolute(error)
    return ops.where(size <= 1, 0.5 * ops.square(error), size - 0.5)


ERRORS: dict[str, Callable[[Any], Any]] = {"mse": ops.square, "mae": ops.absolute, "huber": _huber}


def split_known(targets):
    """Returns which targets are known, and the targets with 0 in place of unknown ones."""
    known = ops.logical_not(ops.isnan(targets))
    return known, ops.where(known, targets, 0.0)


def _of_classes(config, task, **remedies):
    if config.balance == "weights":  # all classes get the same total, and images 1 on average
        remedies["weights"] = [1 / (len(task.shares) * share) for share in task.shares]
    smoothing = {"label_smoothing": config.label_smoothing}
    if not remedies:
        return keras.losses.CategoricalCrossentropy(from_logits=True, **smoothing)
    return RareClassCrossentropy(**smoothing, **remedies)


def _sigmoid(config, task, gamma=0.0):
    weights = None
    if config.balance == "weights":  # positives and negatives get the same total weight
        weights = [(1 - share) / share for share in task.shares]
    return SigmoidCrossentropy(gamma, weights)


def _focal(config, task):
    if task.kind == "labels":
        return _sigmoid(config, task, config.focal_gamma)
    return _of_classes(config, task, gamma=config.focal_gamma)


def _logit_adjusted(config, task):
    return _of_classes(config, task, log_shares=[math.log(share) for share in task.shares])


LOSSES: dict[str, Callable[[Any, Task], keras.losses.Loss]] = {
    "softmax": _of_classes,
    "sigmoid": _sigmoid,
    "focal": _focal,
    "logit_adjusted": _logit_adjusted,
    "mse": lambda config, task: RegressionLoss("mse"),
    "mae": lambda config, task: RegressionLoss("mae"),
    "huber": lambda config, task: RegressionLoss("huber"),
    "pixels": lambda config, task: PixelCrossentropy(),
    "set": lambda config, task: SetPrediction(),
}


EPSILON = 1e-6  # added to variances and to squared norms


@keras.saving.register_keras_serializable(package="vit_keras")
class Distillation(Configured, keras.losses.Loss):
    """The sum of a loss for the labels and a loss for the teacher's logits.

    It takes targets `(B, K)` and logits `(B, 3, K)`: the student's logits z for the labels, its
    logits s for the teacher, and the teacher's t. The loss of an image is (1 - w) · L(y, z) plus w
    times

    - "soft": T² · KL(softmax(t / T) ‖ softmax(s / T)) (arXiv 1503.02531, Section 2);
    - "hard": the cross-entropy of s with the teacher's best class (arXiv 2012.12877, Eq. 3).

    Args:
        labels: L, the loss for the labels.
        kind: "soft" or "hard".
        weight: w, the weight of the teacher's loss.
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


def _soft(teacher, student, temperature):
    ours, theirs = (ops.log_softmax(x / temperature, axis=-1) for x in (student, teacher))
    return temperature**2 * ops.sum(ops.exp(theirs) * (theirs - ours), axis=-1)


def _hard(teacher, student, temperature):
    best = ops.one_hot(ops.argmax(teacher, axis=-1), teacher.shape[-1], dtype=student.dtype)
    return -ops.sum(best * ops.log_softmax(student, axis=-1), axis=-1)


TAUGHT: dict[str, Callable[[Any, Any, float], Any]] = {"soft": _soft, "hard": _hard}


@keras.saving.register_keras_serializable(package="vit_keras")
class FeatureDistance(Configured, keras.losses.Loss):
    """The distance between a student's features and its teacher's.

    It takes features `(B, 2, T, D)`: the student's s, then the teacher's t. The first of the T
    vectors belongs to the whole image, the others to its patches. The loss of an image is the first
    vector's distance or, with patches, the mean of this distance and the patches' mean distance.
    The targets are not read.

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


@keras.saving.register_keras_serializable(package="vit_keras")
class ContrastiveLoss(Configured, keras.losses.Loss):
    """The contrastive loss of a batch of images and their texts.

    It takes logits `(B, B)` of images and texts, such as those of `models.contrastive_model`, and
    numbers `(B,)` that are equal for equal texts. An image and a text with equal numbers belong
    together; if all numbers differ, the losses are the published ones.

    - "softmax": the mean of the cross-entropies of each image among the texts, and of each text
      among the images (CLIP, arXiv 2103.00020; equal texts as in UniCL, arXiv 2204.03610);
    - "sigmoid": the sum over the texts of binary cross-entropies (SigLIP, arXiv 2303.15343).

    Args:
        kind: "softmax" or "sigmoid".
        **kwargs: The arguments of `keras.losses.Loss`.

    Example:
        >>> loss = vit_keras.training.ContrastiveLoss()
        >>> round(float(loss(np.arange(2), np.zeros((2, 2)))), 4)  # ln 2
        0.6931
    """

    def __init__(self, kind: str = "softmax", **kwargs):
        super().__init__(**kwargs)
        check_choice(kind, ("softmax", "sigmoid"), "kind")
        self.kind = kind

    def call(self, y_true, y_pred):
        numbers = ops.reshape(y_true, (-1,))
        same = ops.cast(numbers[:, None] == numbers, y_pred.dtype)  # (B, B)
        if self.kind == "sigmoid":
            return -ops.sum(ops.log_sigmoid((2 * same - 1) * y_pred), axis=1)
        shares = same / ops.sum(same, axis=1, keepdims=True)
        logs = ops.log_softmax(y_pred, axis=1), ops.log_softmax(ops.transpose(y_pred), axis=1)
        return -ops.sum(shares * (logs[0] + logs[1]), axis=1) / 2


def build_loss(config, task: Task = CLASSES) -> keras.losses.Loss:
    """Builds the loss of a run's `Config`.

    Without a pretext task, the loss compares outputs and targets, both `(B, K)`. With one, it
    compares logits `(B, N, K)` with classes `(B, N)`, or predictions with targets, both
    `(B, N, D)`. With "dino", it takes the loss that the model computes. With a teacher, it is a
    `Distillation` or a `FeatureDistance`.

    Args:
        config: The `Config`; if it has no `loss`, the task's default is built.
        task: The task that the model learns.
    """
    distill = config.distill
    if distill.is_active and not distill.needs_labels:
        return FeatureDistance(distill.distance)
    if config.pretext.is_dino:
        return ComputedLoss()
    if config.pretext.is_active:
        if config.pretext.predicts_colors:
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return keras.losses.MeanSquaredError()
    loss = LOSSES[config.loss or task.row.losses[0]](config, task)
    if not distill.is_active:
        return loss
    return Distillation(loss, distill.kind, distill.weight, distill.temperature)
