"""The loss of a detector, whose predictions are a set: each object is matched with one of them."""

import keras
import numpy as np
from keras import ops

from vit_keras.layers.backends import lookup
from vit_keras.layers.base import Configured
from vit_keras.support import extras

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
