"""Corners and overlaps of boxes around objects, COCO's figures, and the precision of labels.

A picture's boxes are `(M, 5)` or `(M, 6)`: class, center x, center y, width and height as fractions
of its sides, and a flag, which is 0 for objects that count. Rows of class −1 are padding.
"""

import contextlib
import io
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_keras.support import extras

COLUMNS = 5  # of a target: class, center x, center y, width, height
HIT = 0.5  # the least overlap of a prediction with its object
SIDE = 100  # pixels of the pictures of `box_precision`; any size gives the same figure
FIGURES = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")  # COCO's first six


class Boxes(NamedTuple):
    """The objects in a picture.

    Attributes:
        classes: `(D,)` integers.
        scores: `(D,)`, in 0..1.
        corners: `(D, 4)`: left, top, right and bottom in pixels.
    """

    classes: np.ndarray
    scores: np.ndarray
    corners: np.ndarray

    def chosen(self, rows: Any) -> "Boxes":
        """The objects in some rows, given by a mask or an array of indices."""
        return Boxes(*(column[rows] for column in self))


def to_corners(boxes: np.ndarray) -> np.ndarray:
    """Converts center x, center y, width and height, `(..., 4)`, to left, top, right and bottom."""
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    return np.concatenate([center - half, center + half], axis=-1)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Computes the softmax over the last axis."""
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


def scored_corners(outputs: np.ndarray) -> np.ndarray:
    """Converts the joined outputs of a detector to scores and corners.

    Args:
        outputs: `(..., K + 1 + 4)`: logits, the last of which means no object, and a box.

    Returns:
        `(..., K + 4)`: the probability of each class, then left, top, right and bottom.
    """
    shares = softmax(outputs[..., :-4])
    return np.concatenate([shares[..., :-1], to_corners(outputs[..., -4:])], axis=-1)


def best_of(answer: np.ndarray, size: Sequence[int]) -> Boxes:
    """Returns a picture's predictions `(T, K + 4)` as boxes of their most likely classes.

    Args:
        answer: From `scored_corners`.
        size: The picture's width and height in pixels, to which the boxes are clipped.
    """
    scores, corners = answer[:, :-4], np.clip(answer[:, -4:], 0, 1)
    return Boxes(scores.argmax(axis=-1), scores.max(axis=-1), corners * np.tile(size, 2))


def boxes_of(label: np.ndarray, size: Sequence[int]) -> Boxes:
    """Returns the objects of a label; their scores are 1, or 0 for those that do not count."""
    rows = label[label[:, 0] >= 0]
    counts = 1.0 - (rows[:, COLUMNS:] != 0).any(axis=-1)
    return Boxes(rows[:, 0].astype(int), counts, to_corners(rows[:, 1:COLUMNS]) * np.tile(size, 2))


def overlaps(first: np.ndarray, second: np.ndarray, of_smaller: bool = False) -> np.ndarray:
    """Computes the intersection over union of boxes.

    Args:
        first: `(..., 4)` corners.
        second: `(..., 4)` corners, which broadcast with `first`.
        of_smaller: Whether to divide by the smaller box instead of the union.

    Example:
        >>> overlaps(np.array([0, 0, 2, 2]), np.array([1, 0, 3, 2])).round(3)
        np.float64(0.333)
    """
    low = np.maximum(first[..., :2], second[..., :2])
    high = np.minimum(first[..., 2:], second[..., 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=-1)
    areas = [np.prod(boxes[..., 2:] - boxes[..., :2], axis=-1) for boxes in (first, second)]
    whole = np.minimum(*areas) if of_smaller else sum(areas) - shared
    return shared / np.maximum(whole, 1e-12)


def without_repeats(boxes: Boxes, ranks: np.ndarray, least: float = HIT) -> Boxes:
    """Leaves out boxes that repeat a higher-ranked box of the same class.

    Args:
        boxes: The boxes.
        ranks: `(D,)` numbers.
        least: The least overlap of a repeat, as a fraction of the smaller box, so that a box around
            a part of an object is a repeat too.
    """
    boxes = boxes.chosen(np.argsort(-ranks, kind="stable"))
    kept = np.ones(len(boxes.scores), bool)
    for row, corners in enumerate(boxes.corners):
        if kept[row]:
            rest = slice(row + 1, None)
            same = boxes.classes[rest] == boxes.classes[row]
            kept[rest] &= ~(same & (overlaps(corners, boxes.corners[rest], True) >= least))
    return boxes.chosen(kept)


def coco_evaluation(true: Sequence[Boxes], predicted: Iterable[Boxes], num_classes: int) -> Any:
    """Judges boxes with pycocotools.

    Args:
        true: The objects of each picture, from `boxes_of`.
        predicted: The predictions for each picture. COCO counts the 100 most confident ones.
        num_classes: K.

    Returns:
        The `COCOeval`, with its "eval" and its "stats".
    """
    coco = extras.require("pycocotools.coco")
    from pycocotools.cocoeval import COCOeval

    sides = []
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
        for pictures in (true, predicted):
            side = coco.COCO()
            side.dataset = coco_document((({}, boxes) for boxes in pictures), range(num_classes))
            side.createIndex()
            sides.append(side)
        evaluation = COCOeval(*sides, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation


def coco_document(pictures: Iterable[tuple[dict[str, Any], Boxes]], names: Iterable) -> dict:
    """Returns pictures and their boxes as COCO's JSON; boxes that do not count become crowds.

    Args:
        pictures: What is known of each picture, such as "file_name", and its boxes.
        names: The names of the classes.
    """
    images, rows = list[dict[str, Any]](), list[dict[str, Any]]()
    for picture, (facts, boxes) in enumerate(pictures, 1):
        images.append({"id": picture, **facts})
        for k, score, corners in zip(*boxes):
            size = corners[2:] - corners[:2]
            row: dict[str, Any] = {"id": len(rows) + 1, "image_id": picture}
            row |= {"category_id": int(k), "bbox": [*map(float, (*corners[:2], *size))]}
            row |= {"area": float(np.prod(size)), "iscrowd": int(score == 0)}
            rows.append(row | {"score": float(score)})
    categories = [{"id": k, "name": name} for k, name in enumerate(names)]
    return {"images": images, "annotations": rows, "categories": categories}


def coco_figures(evaluation: Any) -> dict[str, float | None]:
    """Returns `FIGURES` of an evaluation; None where there are no objects of that size."""
    known = lambda value: None if value < 0 else float(value)
    return {name: known(value) for name, value in zip(FIGURES, evaluation.stats)}


def box_precision(labels: np.ndarray, answers: np.ndarray) -> float:
    """Returns COCO's average precision, for objects of all sizes; 0 without objects.

    Args:
        labels: `(N, M, 5)`.
        answers: `(N, T, K + 4)`, from `scored_corners`.
    """
    true = [boxes_of(label, (SIDE, SIDE)) for label in labels]
    predicted = [best_of(answer, (SIDE, SIDE)) for answer in answers]
    evaluation = coco_evaluation(true, predicted, answers.shape[-1] - 4)
    return coco_figures(evaluation)["ap"] or 0.0


def label_precisions(labels: np.ndarray, outputs: np.ndarray) -> list[float | None]:
    """Returns the average precision of each label; None without a known positive.

    Args:
        labels: `(N, K)` of 0 and 1, with NaN for unknown ones, which are left out.
        outputs: `(N, K)`; the higher, the more likely.
    """
    score = extras.require("sklearn.metrics").average_precision_score
    columns = zip(labels.T, outputs.T, ~np.isnan(labels).T)
    return [float(score(y[k], p[k])) if y[k].any() else None for y, p, k in columns]
