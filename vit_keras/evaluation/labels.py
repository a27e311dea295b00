"""Judges predictions of several labels a picture; labels that are NaN are unknown, and left out."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras import extras
from vit_keras.tasks import Task


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float | None:
    """Computes the average precision of one label, Σ (R_n − R_{n−1}) P_n over the thresholds.

    Args:
        scores: `(N,)`, higher for what is more likely.
        labels: `(N,)` of 0 and 1.

    Returns:
        A number in [0, 1]; None if no label is 1.

    Example:
        >>> average_precision(np.array([0.9, 0.8, 0.1]), np.array([1.0, 0.0, 1.0]))
        0.8333333333333333
    """
    return float(_metrics().average_precision_score(labels, scores)) if labels.any() else None


def best_thresholds(probabilities: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    """Chooses the threshold of each label that gives the highest F1.

    Each separates two probabilities in float32: it lies between them, or, where nothing does, it
    is the higher one. A label without a positive gets 0.5.

    Args:
        probabilities: `(N, K)`.
        labels: `(N, K)` of 0 and 1, with NaN for unknown ones.

    Returns:
        K thresholds, from which on a label counts as present.

    Example:
        >>> best_thresholds(np.array([[0.1], [0.3], [0.4]]), np.array([[0.0], [1.0], [1.0]]))
        (0.2,)
    """
    columns = _known_columns(probabilities.astype("float32"), labels)
    return tuple(_best_threshold(p[k], y[k]) for p, y, k in columns)


def _best_threshold(probabilities, labels):
    if not labels.any():
        return 0.5
    precision, recall, values = _metrics().precision_recall_curve(labels, probabilities)
    f1 = 2 * precision * recall / np.maximum(precision + recall, np.finfo("float64").tiny)
    best = len(values) - 1 - int(f1[-2::-1].argmax())  # the highest of equally good ones
    below = values[best - 1] if best else 0.0
    middle = np.float32((values[best] + below) / 2)
    is_between = below < middle < values[best]
    return float(str(middle)) if is_between else float(values[best])  # the fewest digits


def _metrics():
    return extras.require("sklearn.metrics", extra="data", purpose="Judging labels")


def _known_columns(values, labels):
    """The columns of values and labels, and where the labels are known."""
    for value, label in zip(values.T.astype("float64"), labels.T.astype("float64")):
        yield value, label, ~np.isnan(label)


def report_labels(
    outputs: np.ndarray,
    labels: np.ndarray,
    names: Sequence[str],
    task: Task,
    gives_probabilities: bool = False,
) -> dict[str, Any]:
    """Judges a model of several labels.

    Args:
        outputs: Logits, `(N, K)`, or with `gives_probabilities` the probabilities.
        labels: `(N, K)` of 0 and 1, with NaN for unknown ones.
        names: The K names.
        task: Its thresholds decide which labels count as present.
        gives_probabilities: Whether the outputs are probabilities instead of logits.

    Returns:
        "average_precision" (the mean over labels), "macro_f1", "micro_f1", "images", and "labels":
        for each label its known and its positive images, average precision, threshold, precision,
        recall, and F1. Where a figure is not defined, such as the recall of a label without
        positives, it is None and left out of means.
    """
    chosen = task.present(outputs if gives_probabilities else sigmoid(outputs))
    columns = zip(names, _known_columns(outputs, labels), chosen.T, strict=True)
    rows = [
        _row(str(name), scores[k], y[k], present[k], task.threshold(number))
        for number, (name, (scores, y, k), present) in enumerate(columns)
    ]
    right, total = (sum(row.pop(key) for row in rows) for key in ("right", "chosen"))
    positives = sum(row["positives"] for row in rows)
    return {
        "average_precision": mean_of_known(rows, "average_precision"),
        "macro_f1": mean_of_known(rows, "f1"),
        "micro_f1": _share(2 * right, total + positives),
        "images": len(labels),
        "labels": rows,
    }


def _row(name, scores, labels, chosen, threshold):
    right, positives = float(labels[chosen].sum()), float(labels.sum())
    return {
        "name": name,
        "images": len(labels),
        "positives": int(positives),
        "average_precision": average_precision(scores, labels),
        "threshold": threshold,
        "precision": _share(right, chosen.sum()),
        "recall": _share(right, positives),
        "f1": _share(2 * right, chosen.sum() + positives),
        "right": right,
        "chosen": float(chosen.sum()),
    }


def _share(count, whole):
    return float(count / whole) if whole else None


def mean_of_known(rows: Sequence[dict[str, Any]], key: str) -> float | None:
    """Returns the mean of the values that are not None; None if all are."""
    known = [row[key] for row in rows if row[key] is not None]
    return float(np.mean(known)) if known else None


def label_table(metrics: dict[str, Any]) -> str:
    """Formats a report of labels for a terminal: one line per label, and the means last.

    Example:
        >>> outputs, labels = np.array([[0.9], [0.2]]), np.array([[1.0], [0.0]])
        >>> print(label_table(report_labels(outputs, labels, ["a"], Task("labels"), True)))
        label  images  positive       AP  threshold  precision   recall       F1
        a           2         1  100.00%       0.50    100.00%  100.00%  100.00%
        mean average precision 100.00%, macro F1 100.00%, micro F1 100.00% of 2 images
    """
    width = max(5, *(len(row["name"]) for row in metrics["labels"]))
    heads = "images  positive       AP  threshold  precision   recall       F1"
    lines = [f"{'label':<{width}}  {heads}"]
    for row in metrics["labels"]:
        shares = [percent(row[key], 7) for key in ("precision", "recall", "f1")]
        lines.append(
            f"{row['name']:<{width}}  {row['images']:>6}  {row['positives']:>8}  "
            f"{percent(row['average_precision'], 7)}  {_short(row['threshold']):>9}    "
            + "  ".join(shares)
        )
    return "\n".join([*lines, f"{_means(metrics)} of {metrics['images']} images"])


def _short(threshold):
    """Two digits, which for the threshold of a rare label need an exponent."""
    return f"{threshold:.1e}" if 0 < threshold < 0.01 else f"{threshold:.2f}"


def label_headline(metrics: dict[str, Any]) -> str:
    """The line that a run of labels ends with."""
    return f"{_means(metrics)} of {metrics['images']} held-out images"


def _means(metrics):
    keys = ("average_precision", "macro_f1", "micro_f1")
    ap, macro, micro = (percent(metrics[key], 0) for key in keys)
    return f"mean average precision {ap}, macro F1 {macro}, micro F1 {micro}"


def percent(share: float | None, width: int) -> str:
    """A share in percent with two digits, or a dash; at least `width` characters."""
    return f"{'-' if share is None else f'{100 * share:.2f}%':>{width}}"


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Computes 1 / (1 + exp(-x)) without overflow, in the type of `logits`.

    Example:
        >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
        array([0. , 0.5, 1. ])
    """
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1, small) / (1 + small)
