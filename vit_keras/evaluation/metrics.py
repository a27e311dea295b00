"""Metrics for models of classes, labels and numbers, for probabilities, and for ReaL labels.

NaN marks unknown labels and numbers, which are left out.
"""

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras.support import extras
from vit_keras.support.box_metrics import label_precisions
from vit_keras.support.checks import read_json
from vit_keras.support.tasks import CLASSES, Task


def best_thresholds(probabilities: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    """Chooses, for each label, the threshold that gives the highest F1.

    Each threshold lies between two probabilities in float32, or equals the higher one if they are
    adjacent. A label without positives gets 0.5.

    Args:
        probabilities: `(N, K)`.
        labels: `(N, K)` of 0 and 1, with NaN for unknown ones.

    Returns:
        K thresholds; a label counts as present at its threshold and above.

    Example:
        >>> best_thresholds(np.array([[0.1], [0.3], [0.4]]), np.array([[0.0], [1.0], [1.0]]))
        (0.2,)
    """
    columns = zip(probabilities.astype("float32").T, labels.T, ~np.isnan(labels).T)
    return tuple(_best_threshold(p[k].astype("float64"), y[k]) for p, y, k in columns)


def _best_threshold(probabilities, labels):
    if not labels.any():
        return 0.5
    precision, recall, values = _metrics().precision_recall_curve(labels, probabilities)
    f1 = 2 * precision * recall / np.maximum(precision + recall, np.finfo("float64").tiny)
    best = len(values) - 1 - int(f1[-2::-1].argmax())  # the highest of equally good thresholds
    below = values[best - 1] if best else 0.0
    middle = np.float32((values[best] + below) / 2)
    is_between = below < middle < values[best]
    return float(str(middle)) if is_between else float(values[best])  # with the fewest digits


def _metrics():
    return extras.require("sklearn.metrics")


def report_labels(outputs, labels, names, task: Task) -> dict[str, Any]:
    """Judges a multi-label model.

    Args:
        outputs: `(N, K)` probabilities.
        labels: `(N, K)` of 0 and 1, with NaN for unknown ones.
        names: The K names.
        task: Its thresholds decide which labels count as present.

    Returns:
        "average_precision" (the mean over labels), "macro_f1", "micro_f1", "images", and "labels":
        for each label its known and positive images, average precision, threshold, precision,
        recall, and F1. An undefined metric, such as the recall or the F1 of a label without
        positives, is None and left out of means.
    """
    known, positive = ~np.isnan(labels), labels == 1
    chosen, precisions = task.present(outputs) & known, label_precisions(labels, outputs)
    counts = [x.sum(axis=0) for x in (chosen & positive, chosen, positive)]
    rows = []
    for k, (name, right, marked, positives) in enumerate(zip(names, *counts)):
        row = {"name": str(name), "images": int(known[:, k].sum()), "positives": int(positives)}
        row |= {"average_precision": precisions[k], "threshold": task.threshold(k)}
        rows.append(row | _rates(right, marked, positives))
    right, marked, positives = (int(count.sum()) for count in counts)
    return {
        "average_precision": mean_of_known(rows, "average_precision"),
        "macro_f1": mean_of_known(rows, "f1"),
        "micro_f1": share_of(2 * right, marked + positives),
        "images": len(labels),
        "labels": rows,
    }


def share_of(count, whole) -> float | None:
    """Returns a share; None if the whole is 0."""
    return float(count / whole) if whole else None


def _rates(right, marked, true):
    """Returns precision, recall and F1; recall and F1 are None if `true` is 0."""
    f1 = share_of(2 * right, marked + true) if true else None
    return {"precision": share_of(right, marked), "recall": share_of(right, true), "f1": f1}


def mean_of_known(rows: Sequence[dict[str, Any]], key: str) -> float | None:
    """Returns the mean of the values that are not None; None if all are."""
    known = [row[key] for row in rows if row[key] is not None]
    return float(np.mean(known)) if known else None


def class_rows(matrix: np.ndarray, names: Sequence[str], counted: str) -> list[dict[str, Any]]:
    """Returns each class's name, true count (named `counted`), precision, recall and F1.

    Row i, column j of `matrix` counts items of class i that were predicted as class j.
    """
    counts = zip(names, np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1))
    return [
        {"name": str(name), counted: int(true), **_rates(right, marked, true)}
        for name, right, marked, true in counts
    ]


def count_pairs(true: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """Counts the pairs of true and predicted classes `(N,)` in a matrix `(K, K)` for `class_rows`.

    Raises:
        ValueError: If a number is not a class.
    """
    for numbers in (true, predicted):
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < num_classes:
            raise ValueError(
                f"Labels must lie in [0, {num_classes}), the model's classes. "
                f"Received: labels from {numbers.min()} to {numbers.max()}"
            )
    counts = np.bincount(num_classes * true + predicted, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes)


TOP = 5


def report_classes(outputs, labels, class_names, task: Task) -> dict[str, Any]:
    """Judges a classifier.

    Args:
        outputs: Logits or probabilities, `(N, K)`.
        labels: `(N,)` integers.
        class_names: The K names.
        task: Ignored; all judges take the same arguments.

    Returns:
        "accuracy", "top_5_accuracy" (None if K <= 5), "balanced_accuracy" (the mean recall),
        "macro_f1", "images", "classes" (for each class its images, precision, recall, and F1), and
        "confusion_matrix"; its row i, column j counts the images of class i that were predicted as
        class j. A class without images has recall None and F1 None; a class that was never
        predicted has precision None. These are left out of means.

    Raises:
        ValueError: If a label lies outside the K classes.
    """
    count = outputs.shape[-1]
    matrix = count_pairs(labels, outputs.argmax(axis=-1), count)
    rows = class_rows(matrix, class_names, "images")
    largest = np.argpartition(outputs, -min(TOP, count), axis=-1)[:, -TOP:]
    in_top = float((largest == labels[:, None]).any(axis=-1).mean())
    return {
        "accuracy": float(np.trace(matrix) / matrix.sum()),
        "top_5_accuracy": in_top if count > TOP else None,
        "balanced_accuracy": mean_of_known(rows, "recall"),
        "macro_f1": mean_of_known(rows, "f1"),
        "images": int(matrix.sum()),
        "classes": rows,
        "confusion_matrix": matrix.tolist(),
    }


def report_numbers(outputs, labels, names, task: Task) -> dict[str, Any]:
    """Judges a model of numbers.

    Args:
        outputs: The predicted numbers, `(N, K)`.
        labels: The true numbers, `(N, K)`, with NaN for unknown ones.
        names: The K names.
        task: Ignored; all judges take the same arguments.

    Returns:
        "r2", "mae" and "rmse" (means over the numbers, None if not defined), "images", and
        "numbers": for each its known images, mean and standard deviation, R² = 1 − Σ(y − ŷ)² / Σ(y
        − ȳ)², mean absolute error, root mean square error, mean error, and up to 1000 "points" (y,
        ŷ) to draw. R² is None for a constant number.
    """
    columns = zip(names, outputs.T.astype(float), labels.T.astype(float), strict=True)
    rows = [_number_row(str(name), predicted, true) for name, predicted, true in columns]
    means = {key: mean_of_known(rows, key) for key in ("r2", "mae", "rmse")}
    return {**means, "images": len(labels), "numbers": rows}


def _number_row(name, predicted, true):
    known, metrics = ~np.isnan(true), _metrics()
    if not known.any():
        return {"name": name, "images": 0, **dict.fromkeys(FIGURES), "points": []}
    true, predicted = true[known], predicted[known]
    r2 = metrics.r2_score(true, predicted) if np.ptp(true) else None
    mae = metrics.mean_absolute_error(true, predicted)
    rmse = metrics.root_mean_squared_error(true, predicted)
    values = true.mean(), true.std(), r2, mae, rmse, (predicted - true).mean()
    numbers = {key: None if v is None else float(v) for key, v in zip(FIGURES, values)}
    points = np.stack([true, predicted], axis=1)[:: -(-len(true) // 1000)]
    return {"name": name, "images": len(true), **numbers, "points": points.tolist()}


FIGURES = ("mean", "std", "r2", "mae", "rmse", "mean_error")


BINS = 15


def measure_calibration(
    probabilities: np.ndarray, labels: np.ndarray, bins: int = BINS
) -> dict[str, Any]:
    """Computes the expected calibration error (Guo et al. 2017, Eq. 3).

    The confidence is the largest probability. It falls into one of `bins` intervals (lower, upper]
    of equal width. ECE = Σ_m |B_m|/N · |accuracy(B_m) − confidence(B_m)|.

    Args:
        probabilities: `(N, K)`.
        labels: `(N,)` integers.
        bins: The number of intervals.

    Returns:
        "ece", the error, and "bins", a list with the bounds, the number of images, the accuracy,
        and the confidence of each bin. The last two are None for a bin without images.

    Example:
        >>> probabilities = np.array([[1.0, 0.0], [0.75, 0.25]])
        >>> measure_calibration(probabilities, np.array([0, 1]))["ece"]  # 75% sure, and wrong
        0.375
    """
    confidence = probabilities.max(axis=-1).astype("float64")
    correct = probabilities.argmax(axis=-1) == labels
    edges = np.arange(bins + 1) / bins
    index = np.minimum(np.searchsorted(edges[1:], confidence, side="left"), bins - 1)
    images = np.bincount(index, minlength=bins)
    mean = lambda values: np.bincount(index, values, bins) / np.maximum(images, 1)
    accuracies, confidences = mean(correct), mean(confidence)
    known = lambda means: [x if count else None for x, count in zip(means.tolist(), images)]
    columns = {"lower": edges[:-1].tolist(), "upper": edges[1:].tolist(), "images": images.tolist()}
    columns |= {"accuracy": known(accuracies), "confidence": known(confidences)}
    rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
    error = np.abs(accuracies - confidences) @ images / len(labels)
    return {"ece": float(error), "bins": rows}


def fit_temperature(logits: np.ndarray, labels: np.ndarray, task: Task = CLASSES) -> float:
    """Finds the temperature T for which the probabilities of `logits / T` fit the labels best.

    It minimizes the mean negative log-likelihood (Guo et al. 2017, Section 4.2), of a softmax for
    classes, or of a sigmoid for each known label.

    Args:
        logits: `(N, K)`.
        labels: `(N,)` integers, or `(N, K)` of 0 and 1 with NaN for unknown labels.
        task: What the logits are: classes or labels.

    Returns:
        T, between 0.1 and 10; above 1 if the model is too confident.

    Raises:
        ImportError: If SciPy, which comes with scikit-learn, is not installed.

    Example:
        >>> logits = np.array([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]])
        >>> round(fit_temperature(logits, np.array([0, 0, 0, 1])), 2)  # e^(4/T) = 3
        3.64
    """
    optimize = extras.require("scipy.optimize")

    def loss(log):
        scaled = logits.astype("float64") / np.exp(log)
        if task.kind == "labels":
            return np.nanmean(np.logaddexp(0, scaled) - labels * scaled)
        of_labels = scaled[np.arange(len(labels)), labels]
        return (np.logaddexp.reduce(scaled, axis=-1) - of_labels).mean()

    bounds = (np.log(0.1), np.log(10))  # separable classes would drive the temperature to 0
    best = optimize.minimize_scalar(loss, bounds=bounds, method="bounded")
    return float(np.exp(best.x))


FILE_NAME = re.compile(r"ILSVRC2012_val_(\d{8})\.")


def read_real_labels(
    path: str | os.PathLike, images: int, num_classes: int, paths: Sequence[str] | None = None
) -> list[set[int]]:
    """Reads the labels of each image from the published `real.json`.

    The file has one list per image, in the order of the names of ImageNet's validation files.

    Args:
        path: The file.
        images: The number of images.
        num_classes: The number of the model's classes.
        paths: The image files. ImageNet's names choose the lists; otherwise the images must be in
            the order of `real.json`.

    Returns:
        One set of labels per image.

    Raises:
        FileNotFoundError: If there is no file at `path`.
        ValueError: If the file has a different number of lists, or labels outside the classes, or
            if the images come from TensorFlow Datasets, which has a different order.

    Example:
        ```python
        labels = evaluation.read_real_labels("real.json", images=50_000, num_classes=1000)
        accuracy, images = evaluation.real_accuracy(logits.argmax(axis=-1), labels)
        ```
    """
    labels = [*map(set, read_json(path, list[list[int]]))]
    names = [FILE_NAME.search(os.path.basename(name)) for name in paths or ()]
    named = bool(names) and all(names)
    if not named and any(name.startswith("tfds:") for name in paths or ()):
        raise ValueError(
            "ReaL labels follow the order of ImageNet's files, unlike TensorFlow Datasets. "
            "Received: images from TensorFlow Datasets. Give the validation images as folder:PATH"
        )
    order = [int(name[1]) - 1 for name in names if name] if named else range(images)
    count = max(order, default=-1) + 1
    outside = sorted(set().union(*labels) - set(range(num_classes)))
    if outside or count > len(labels) or (not named and count != len(labels)):
        wrong = f", with the labels {outside[:5]} outside the classes" if outside else ""
        raise ValueError(
            f"{os.fspath(path)!r} must have, for each image, one list of labels in "
            f"[0, {num_classes}), the model's classes. Received: {len(labels)} lists for {count} "
            f"images{wrong}"
        )
    return [labels[i] for i in order]


def real_accuracy(predicted: np.ndarray, labels: Sequence[set[int]]) -> tuple[float, int]:
    """Computes the ReaL accuracy; images without labels are left out, as in the paper.

    Args:
        predicted: The predicted classes, `(N,)`.
        labels: A set of labels per image.

    Returns:
        The share of images whose predicted class is among their labels, and the number of images
        that count.

    Example:
        >>> real_accuracy(np.array([3, 5, 0]), [{3, 4}, {1}, set()])  # the last one does not count
        (0.5, 2)
    """
    right = [int(best) in fitting for best, fitting in zip(predicted, labels) if fitting]
    return sum(right) / len(right), len(right)
