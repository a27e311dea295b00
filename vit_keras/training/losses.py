"""The losses that a run can minimize. Unknown labels and numbers are NaN, and are left out."""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from vit_keras.layers.backends import lookup
from vit_keras.layers.base import Configured
from vit_keras.layers.common import check_choice
from vit_keras.support import extras
from vit_keras.support.tasks import CLASSES, VOID, Task


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


SMALLEST = 1e-9  # keeps quotients of empty boxes finite


def generalized_iou(first, second):
    """Computes the generalized intersection over union (arXiv 1902.09630) of boxes.

    Args:
        first: `(..., 4)`, center x, center y, width and height; broadcasts with `second`.
        second: `(..., 4)`.

    Returns:
        `(...)`, in [−1, 1].
    """
    (low, high), (other_low, other_high) = map(_corners, (first, second))
    inner = ops.maximum(ops.minimum(high, other_high) - ops.maximum(low, other_low), 0)
    outer = ops.maximum(high, other_high) - ops.minimum(low, other_low)
    shared, hull = ops.prod(inner, axis=-1), ops.prod(outer, axis=-1)
    both = ops.prod(high - low, axis=-1) + ops.prod(other_high - other_low, axis=-1) - shared
    return shared / (both + SMALLEST) - (hull - both) / (hull + SMALLEST)


def _corners(boxes):
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    return center - half, center + half


def _assign(costs, present):
    """Matches the objects that are present with predictions at the lowest cost, `(B, M)` int32."""
    optimize = extras.require("scipy.optimize")
    matched = np.zeros(np.shape(present), "int32")
    for row, cost, is_there in zip(matched, np.asarray(costs), np.asarray(present)):
        cost = np.nan_to_num(cost[:, is_there], nan=1e9, posinf=1e9, neginf=-1e9)
        predictions, objects = optimize.linear_sum_assignment(cost)
        row[np.flatnonzero(is_there)[objects]] = predictions
    return matched


@keras.saving.register_keras_serializable(package="vit_keras")
class SetPrediction(Configured, keras.losses.Loss):
    """The loss of DETR (arXiv 2005.12872, Section 3.1), with which YOLOS was trained.

    In each image, every object is matched with one prediction, so that the total cost is lowest
    (SciPy's Hungarian algorithm, on the CPU). Matched predictions learn the class and the
    box, with L1 and generalized IoU; the others learn that there is no object. The mean over the
    batch is DETR's loss: box losses are averaged over the objects of the batch, and class
    losses over its predictions.

    TensorFlow cannot compile the matching with XLA, so pass `jit_compile=False` to `compile` there.

    Args:
        class_weight: The factor of the class terms, in the loss and in the costs.
        box_weight: The factor of the L1 distances.
        giou_weight: The factor of the generalized IoU.
        no_object_weight: The weight of predictions without an object in the mean class loss.
        **kwargs: The arguments of `keras.losses.Loss`.

    Call arguments:
        y_true: `(B, M, 5)`: the class of an object, and its center x, center y, width and height as
            fractions of the image. Rows of class −1, at any place, are padding. There may be at
            most as many rows as predictions.
        y_pred: `(B, T, K + 1 + 4)`, from `with_joined_boxes`.

    Example:
        >>> logits, box = [9.0, 0.0, 0.0], [0.5, 0.5, 0.2, 0.2]
        >>> loss = vit_keras.training.SetPrediction()
        >>> float(loss(np.array([[[0, *box]]]), np.array([[[*logits, *box]]]))) < 1e-3
        True
    """

    def __init__(
        self,
        class_weight: float = 1.0,
        box_weight: float = 5.0,
        giou_weight: float = 2.0,
        no_object_weight: float = 0.1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.class_weight, self.box_weight = class_weight, box_weight
        self.giou_weight, self.no_object_weight = giou_weight, no_object_weight

    def call(self, y_true, y_pred):
        logits, boxes = y_pred[..., :-4], y_pred[..., -4:]
        tokens, none = logits.shape[1], logits.shape[2] - 1
        if y_true.shape[1] is not None and y_true.shape[1] > tokens:
            raise ValueError(
                "A detector needs a prediction for each object in a picture. Received: pictures "
                f"with {y_true.shape[1]} objects for {tokens} predictions. Give a larger "
                "model.num_boxes or, if model.detector is patches, smaller patches"
            )
        classes, targets = ops.cast(y_true[..., 0], "int32"), ops.cast(y_true[..., 1:], boxes.dtype)
        present = classes >= 0  # (B, M)
        costs = self._costs(ops.softmax(logits), boxes, ops.maximum(classes, 0), targets)
        matched = lookup("on_host")(_assign, [costs, present])  # (B, M)
        is_present = ops.cast(present, boxes.dtype)
        rows = ops.one_hot(matched, tokens, dtype=boxes.dtype) * is_present[..., None]  # (B, M, T)
        assigned = ops.sum(rows, axis=1)  # (B, T), 0 or 1
        of_class = ops.one_hot(ops.maximum(classes, 0), none + 1, dtype=boxes.dtype)
        expected = ops.matmul(ops.transpose(rows, (0, 2, 1)), of_class)  # (B, T, K + 1)
        nothing = (1 - assigned)[..., None] * ops.one_hot(none, none + 1, dtype=boxes.dtype)
        errors = -ops.sum((expected + nothing) * ops.log_softmax(logits), axis=-1)
        shares = assigned + (1 - assigned) * self.no_object_weight
        # Each image's part of the batch's sums, times B, so that Keras' mean is DETR's quotient.
        batch = ops.cast(ops.shape(y_pred)[0], boxes.dtype)
        of_classes = ops.sum(shares * errors, axis=-1) / ops.sum(shares)
        near = ops.matmul(rows, boxes)  # (B, M, 4), the matched predictions
        distance = ops.sum(ops.abs(near - targets), axis=-1) * self.box_weight
        distance += (1 - generalized_iou(near, targets)) * self.giou_weight
        of_boxes = ops.sum(distance * is_present, axis=-1) / ops.maximum(ops.sum(is_present), 1)
        return batch * (self.class_weight * of_classes + of_boxes)

    def _costs(self, shares, boxes, classes, targets):
        """The costs of matching each prediction with each object, `(B, T, M)`, as constants."""
        of_class = ops.one_hot(classes, shares.shape[-1], dtype=shares.dtype)  # (B, M, K + 1)
        costs = -self.class_weight * ops.matmul(shares, ops.transpose(of_class, (0, 2, 1)))
        every, other = boxes[:, :, None], targets[:, None]
        costs += self.box_weight * ops.sum(ops.abs(every - other), axis=-1)
        costs -= self.giou_weight * generalized_iou(every, other)
        return ops.stop_gradient(costs)


EPSILON = 1e-6  # added to squared norms


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
        judged, student, teacher = (y_pred[:, i] for i in range(3))
        if self.kind == "soft":
            ours, theirs = (ops.log_softmax(x / self.temperature) for x in (student, teacher))
            taught = self.temperature**2 * ops.sum(ops.exp(theirs) * (theirs - ours), axis=-1)
        else:
            best = ops.one_hot(ops.argmax(teacher, axis=-1), teacher.shape[-1], dtype=student.dtype)
            taught = -ops.sum(best * ops.log_softmax(student), axis=-1)
        if self.weight == 1:
            return taught
        return self.weight * taught + (1 - self.weight) * self.labels.call(y_true, judged)


@keras.saving.register_keras_serializable(package="vit_keras")
class FeatureDistance(keras.losses.Loss):
    """The distance between a student's features and its teacher's, 1 - s·t / (|s| |t|).

    It takes features `(B, 2, T, D)`: the student's s, then the teacher's t. The first of the T
    vectors belongs to the whole image, the others to its patches. The loss of an image is the first
    vector's distance or, with patches, the mean of this distance and the patches' mean distance.
    The targets are not read.

    Example:
        >>> loss = vit_keras.training.FeatureDistance()
        >>> features = np.array([[[[1.0, 0.0]], [[0.0, 2.0]]]])  # at a right angle
        >>> float(loss(np.zeros((1, 1)), features))
        1.0
    """

    def call(self, y_true, y_pred):
        student, teacher = y_pred[:, 0], y_pred[:, 1]  # (B, T, D)
        unit = lambda x: x * ops.rsqrt(ops.sum(ops.square(x), -1, keepdims=True) + EPSILON)
        distances = 1 - ops.sum(unit(student) * unit(teacher), axis=-1)  # (B, T)
        if distances.shape[1] == 1:
            return distances[:, 0]
        return 0.5 * (distances[:, 0] + ops.mean(distances[:, 1:], axis=1))


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
    if distill.is_of_features:
        return FeatureDistance()
    if config.pretext.is_dino:
        return ComputedLoss()
    if config.pretext.is_active:
        if config.pretext.predicts_colors:
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return keras.losses.MeanSquaredError()
    loss = _loss_of_labels(config, task)
    if not distill.teacher:
        return loss
    return Distillation(loss, distill.kind, distill.weight, distill.temperature)


def _loss_of_labels(config, task):
    name, is_weighted = config.loss or task.row.losses[0], config.balance == "weights"
    if name in ERRORS:
        return RegressionLoss(name)
    if name in ("pixels", "set"):
        return PixelCrossentropy() if name == "pixels" else SetPrediction()
    focus = {"gamma": config.focal_gamma} if name == "focal" else {}
    if name == "sigmoid" or task.kind == "labels":
        # Positives and negatives get the same total weight.
        weights = [(1 - share) / share for share in task.shares] if is_weighted else None
        return SigmoidCrossentropy(positive_weights=weights, **focus)
    remedies: dict[str, Any] = focus
    if is_weighted:  # all classes get the same total, and images 1 on average
        remedies["weights"] = [1 / (len(task.shares) * share) for share in task.shares]
    if name == "logit_adjusted":
        remedies["log_shares"] = [math.log(share) for share in task.shares]
    smoothing = {"label_smoothing": config.label_smoothing}
    if not remedies:
        return keras.losses.CategoricalCrossentropy(from_logits=True, **smoothing)
    return RareClassCrossentropy(**smoothing, **remedies)
