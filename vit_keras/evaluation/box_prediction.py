"""Predicts, judges and draws boxes around the objects in pictures of any size."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vit_keras import data
from vit_keras.data.depth import viewable
from vit_keras.evaluation import mask_prediction
from vit_keras.evaluation.mask_prediction import SHOWN, SIDE, TileOptions
from vit_keras.evaluation.metrics import class_rows
from vit_keras.evaluation.predictors import Predictor
from vit_keras.support import box_metrics, extras
from vit_keras.support.box_metrics import HIT, Boxes, overlaps, without_repeats
from vit_keras.support.tasks import Task

NONE = "none"  # the predicted class of a missed object, and the true one of a false alarm
EDGE = 2  # pixels: an object this close to the edge of a tile counts as cut
HIT_COLOR, MISS_COLOR, ALARM_COLOR = (60, 200, 90), (230, 25, 75), (255, 200, 0)


def predict_boxes(
    predictor: Predictor, pictures: Iterable[np.ndarray], options: TileOptions | None = None
) -> Iterator[Boxes]:
    """Yields all predictions for each picture; those below a threshold are for the caller to drop.

    Pictures are resized to the model's size. With tiles, a box that repeats a more certain one of
    its class is left out; whole objects take precedence over those that the edge of a tile cuts.

    Args:
        predictor: A `Predictor` of boxes.
        pictures: Pixels `(H, W, C)` from `data.read_image`.
        options: `TileOptions`; None resizes each picture.

    Raises:
        ValueError: The predictor does not predict boxes, or its outputs are not finite.

    Example:
        ```python
        predictor, _ = evaluation.open_predictor("runs/boxes")
        (found,) = evaluation.predict_boxes(predictor, [data.read_image("street.jpg", 3)])
        found.corners[found.scores >= 0.5]  # left, top, right and bottom in pixels
        ```
    """
    options = options or TileOptions()
    for picture, outputs in mask_prediction.outputs_of(predictor, pictures, options, "boxes"):
        answers = ((place, predictor.as_probabilities(output)) for place, output in outputs)
        if options.tiles:
            yield _joined(picture, predictor.input_shape[1::-1], answers)
        else:
            yield from (box_metrics.best_of(answer, picture.shape[1::-1]) for _, answer in answers)


def _joined(picture, tile, answers):
    """Joins the boxes of a picture's tiles, whose width and height are `tile`."""
    sides, kept, cut = np.array(picture.shape[1::-1]), [], []
    for (top, left), answer in answers:
        place = np.array([left, top, left + tile[0], top + tile[1]])
        is_inside = np.append(place[:2] > 0, place[2:] < sides)
        boxes = box_metrics.best_of(answer, tile)
        kept.append(boxes._replace(corners=boxes.corners + place[[0, 1, 0, 1]]))
        cut.append((is_inside & (abs(kept[-1].corners - place) < EDGE)).any(axis=-1))
    joined = Boxes(*map(np.concatenate, zip(*kept)))
    joined = joined._replace(corners=np.clip(joined.corners, 0, np.tile(sides, 2)))
    seen = (joined.corners[:, 2:] > joined.corners[:, :2]).all(axis=-1)
    return without_repeats(joined.chosen(seen), joined.scores[seen] - np.concatenate(cut)[seen])


def certain(predicted: Boxes, task: Task, threshold: float | None = None) -> Boxes:
    """Leaves out predictions below a threshold, by default that of their class, and sorts the rest.

    Example:
        >>> corners = np.array([[0.0, 0.0, 9.0, 9.0], [5.0, 5.0, 9.0, 9.0]])
        >>> predicted = Boxes(np.array([0, 1]), np.array([0.4, 0.75]), corners)
        >>> certain(predicted, Task("boxes")).classes
        array([1])
    """
    least = [task.threshold(k) if threshold is None else threshold for k in predicted.classes]
    order = np.argsort(-predicted.scores, kind="stable")
    return predicted.chosen(order[(predicted.scores >= np.array(least, "float32"))[order]])


def best_box_thresholds(
    true: Sequence[Boxes], predicted: Sequence[Boxes], num_classes: int
) -> tuple[float, ...]:
    """Returns, for each class, the score with the best F1 at an overlap of 0.5.

    Precision and recall come from pycocotools. A class without hits gets 0.5.

    Args:
        true: The objects of each picture, from `support.box_metrics.boxes_of`.
        predicted: From `predict_boxes`.
        num_classes: K.

    Example:
        >>> true = Boxes(np.array([0]), np.array([1.0]), np.array([[0.0, 0.0, 9.0, 9.0]]))
        >>> best_box_thresholds([true], [true._replace(scores=np.array([0.75]))], 1)
        (0.75,)
    """
    evaluation = box_metrics.coco_evaluation(true, predicted, num_classes)
    recall = evaluation.params.recThrs
    chosen = []
    for k in range(num_classes):
        precision, scores = (evaluation.eval[x][0, :, k, 0, -1] for x in ("precision", "scores"))
        f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
        chosen.append(float(scores[f1.argmax()]) if f1.max() > 0 else 0.5)
    return tuple(chosen)


def match(true: Boxes, predicted: Boxes) -> tuple[Boxes, Boxes, np.ndarray, np.ndarray]:
    """Pairs objects and predictions of any class that overlap by at least 0.5, with SciPy.

    Returns:
        The objects that count; the predictions, without those that mostly lie in an object that
        does not count; the indices of the paired objects; and those of their predictions.
    """
    optimize = extras.require("scipy.optimize")
    crowds = true.corners[true.scores == 0]
    inside = overlaps(predicted.corners[:, None], crowds[None], of_smaller=True) >= HIT
    predicted, true = predicted.chosen(~inside.any(axis=-1)), true.chosen(true.scores > 0)
    shared = overlaps(true.corners[:, None], predicted.corners[None])
    pairs = optimize.linear_sum_assignment(np.where(shared >= HIT, shared, 0), maximize=True)
    rows, columns = (places[shared[pairs] >= HIT] for places in pairs)
    return true, predicted, rows, columns


def confuse(true: Boxes, predicted: Boxes, num_classes: int) -> np.ndarray:
    """Counts the pairs of true and predicted classes of a picture.

    Args:
        true: The objects. Those that do not count, and what overlaps them, are left out.
        predicted: The predictions that count as present.
        num_classes: K.

    Returns:
        `(K + 1, K + 1)` int64; the last row counts false alarms, and the last column misses.
    """
    true, predicted, rows, columns = match(true, predicted)
    matrix = np.zeros((num_classes + 1,) * 2, "int64")
    np.add.at(matrix, (true.classes[rows], predicted.classes[columns]), 1)
    count = lambda classes, matched: np.bincount(np.delete(classes, matched), minlength=len(matrix))
    matrix[:, -1] += count(true.classes, rows)
    matrix[-1] += count(predicted.classes, columns)
    return matrix


def report_boxes(
    true: Sequence[Boxes], predicted: Sequence[Boxes], class_names: Sequence[str], task: Task
) -> dict[str, Any]:
    """Judges boxes with pycocotools.

    Args:
        true: The objects of each picture, from `support.box_metrics.boxes_of`.
        predicted: All predictions for each picture, from `predict_boxes`.
        class_names: The K names.
        task: Its thresholds decide which predictions count as present.

    Returns:
        COCO's "ap", "ap50", "ap75", "ap_small", "ap_medium" and "ap_large", "images", "boxes" (for
        each class its objects, AP and AP50, and its precision, recall and F1 at its threshold and
        an overlap of 0.5) and the "confusion_matrix" of `confuse`. A figure without objects is
        None.

    Example:
        >>> true = Boxes(np.array([0]), np.array([1.0]), np.array([[0.0, 0.0, 9.0, 9.0]]))
        >>> report_boxes([true], [true], ["cat"], Task("boxes"))["ap50"]
        1.0
    """
    count = len(class_names)
    evaluation = box_metrics.coco_evaluation(true, predicted, count)
    present = [certain(boxes, task) for boxes in predicted]
    matrix = np.zeros((count + 1,) * 2, "int64")
    for pair in zip(true, present, strict=True):
        matrix += confuse(*pair, count)
    precisions = evaluation.eval["precision"][..., 0, -1]  # (overlaps, recalls, K)
    rows = class_rows(matrix, class_names, "objects")
    for k, row in enumerate(rows):
        row |= {"ap": _mean(precisions[:, :, k]), "ap50": _mean(precisions[0, :, k])}
        row["threshold"] = task.threshold(k)
    figures = box_metrics.coco_figures(evaluation)
    return {**figures, "images": len(true), "boxes": rows, "confusion_matrix": matrix.tolist()}


def _mean(precisions):
    known = precisions[precisions > -1]
    return float(known.mean()) if known.size else None


def judge_boxes(predictor, split, class_names, options=None, sheet=None):
    """Judges a predictor on a split, with the boxes in the pixels of each picture.

    Args:
        predictor: A `Predictor` of boxes.
        split: A split whose labels are boxes.
        class_names: The K names.
        options: How to predict pictures whose size is not the model's.
        sheet: A PNG file in which to draw the eight pictures with the most errors, each beside its
            hits (green), misses (red) and false alarms (yellow). A hit of a wrong class counts as a
            miss and a false alarm.

    Returns:
        A report; see `report_boxes`.

    Raises:
        ValueError: The predictor does not predict boxes, or the split is empty.
    """
    true, predicted = predict_split(predictor, split, options)
    if sheet is not None:
        _draw_worst(predictor, split, true, predicted, sheet)
    return report_boxes(true, predicted, class_names, predictor.task)


def predict_split(
    predictor: Predictor, split: "data.Split", options: TileOptions | None = None
) -> tuple[list[Boxes], list[Boxes]]:
    """Returns the objects in each picture of a split, and the predictions for it.

    Example:
        ```python
        true, predicted = evaluation.predict_split(predictor, dataset.split("test"))
        ```
    """
    rows = mask_prediction.predict_labeled(predictor, split, predict_boxes, options)
    pairs = [(box_metrics.boxes_of(label, x.shape[1::-1]), boxes) for x, label, boxes in rows]
    true, predicted = zip(*pairs)
    return [*true], [*predicted]


def draw_boxes(
    picture: np.ndarray,
    boxes: Boxes,
    names: Sequence[str] | Mapping[int, str],
    color: tuple[int, int, int] | None = None,
) -> np.ndarray:
    """Draws boxes on a picture, with the names of their classes and any score below 1.

    Args:
        picture: Pixels `(H, W, C)` from `data.read_image`.
        boxes: The objects.
        names: The K names, or a mapping from the numbers of classes to names.
        color: Red, green and blue; None for one color per class.

    Returns:
        `(H, W, 3)` uint8.

    Example:
        ```python
        drawn = evaluation.draw_boxes(picture, found, predictor.class_names)
        PIL.Image.fromarray(drawn).save("found.png")
        ```
    """
    image, drawing, font = (extras.require(f"PIL.{x}") for x in ("Image", "ImageDraw", "ImageFont"))
    pixels = np.broadcast_to(viewable(picture), (*picture.shape[:2], 3))
    drawn = image.fromarray(np.ascontiguousarray(pixels))
    pen, points = drawing.Draw(drawn), max(10, max(drawn.size) // 50)
    letters, colors = font.load_default(points), mask_prediction.palette()[1:]
    for k, score, corners in zip(*boxes):
        ink = color or tuple(map(int, colors[k % len(colors)]))
        left, top, *_ = corners
        pen.rectangle([*map(float, corners)], outline=ink, width=max(1, points // 6))
        text = names[k] if score == 1 else f"{names[k]} {score:.2f}"
        place = (float(left), max(0.0, float(top) - points - 2))
        pen.rectangle(pen.textbbox(place, text, letters), fill=ink)
        pen.text(place, text, "black" if sum(ink) > 380 else "white", letters)
    return np.asarray(drawn)


def _draw_worst(predictor, split, true, predicted, path):
    """Draws the pictures of a split with the most errors."""
    present = (certain(boxes, predictor.task) for boxes in predicted)
    errors = [errors_of(*pair) for pair in zip(true, present)]
    counts = [len(misses.scores) + len(alarms.scores) for _, misses, alarms in errors]
    split, names, panels = split.read_as(*predictor.depth), predictor.names, []
    for index in sorted(range(len(true)), key=lambda index: -counts[index])[:SHOWN]:
        picture, objects = split.example(index)[0], true[index]
        drawn = np.asarray(viewable(picture))
        for boxes, color in zip(errors[index], (HIT_COLOR, MISS_COLOR, ALARM_COLOR)):
            drawn = draw_boxes(drawn, boxes, names, color)
        plain = draw_boxes(picture, objects.chosen(objects.scores > 0), names)
        panels.append([data.thumbnail(pixels, 2 * SIDE) for pixels in (plain, drawn)])
    mask_prediction.save_sheet(panels, path)


def errors_of(true: Boxes, predicted: Boxes) -> tuple[Boxes, Boxes, Boxes]:
    """Returns the hits among the predictions, the missed objects, and the false alarms.

    Example:
        >>> corners = np.array([[0.0, 0.0, 9.0, 9.0], [5.0, 5.0, 9.0, 9.0]])
        >>> true = Boxes(np.array([0, 1]), np.ones(2), corners)
        >>> [len(boxes.scores) for boxes in errors_of(true, true.chosen([0]))]
        [1, 1, 0]
    """
    true, predicted, rows, columns = match(true, predicted)
    same = true.classes[rows] == predicted.classes[columns]
    without = lambda boxes, places: boxes.chosen(np.delete(np.arange(len(boxes.scores)), places))
    hits = predicted.chosen(columns[same])
    return hits, without(true, rows[same]), without(predicted, columns[same])
