"""Judges predictions of numbers; numbers that are NaN are unknown, and left out."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras import extras
from vit_keras.evaluation.labels import mean_of_known
from vit_keras.tasks import Task


def report_numbers(
    outputs: np.ndarray, labels: np.ndarray, names: Sequence[str], task: Task
) -> dict[str, Any]:
    """Judges a model of numbers.

    Args:
        outputs: The predicted numbers, `(N, K)`.
        labels: The true numbers, `(N, K)`, with NaN for unknown ones.
        names: The K names.
        task: The task; it decides nothing here.

    Returns:
        "r2", "mae" and "rmse" (means over the numbers, None if not defined), "images", and
        "numbers": for each its known images, mean and deviation, R² = 1 − Σ(y − ŷ)² / Σ(y − ȳ)²,
        mean absolute error, root of the mean square error, mean error, and up to 1000 "points"
        (y, ŷ) to draw. R² is None for a number that is the same everywhere.
    """
    rows = []
    for name, predicted, true in zip(names, outputs.T, labels.T, strict=True):
        known = ~np.isnan(true)
        rows.append(_row(str(name), predicted[known].astype(float), true[known].astype(float)))
    return {
        **{key: mean_of_known(rows, key) for key in ("r2", "mae", "rmse")},
        "images": len(labels),
        "numbers": rows,
    }


def number_table(metrics: dict[str, Any]) -> str:
    """Formats a report of numbers for a terminal: one line per number.

    Example:
        >>> true, predicted = np.array([[1.0], [2.0], [4.0]]), np.array([[1.0], [2.0], [3.0]])
        >>> print(number_table(report_numbers(predicted, true, ["age"], Task("numbers"))))
        number  images       mean        std         R²        MAE       RMSE
        age          3      2.333      1.247     0.7857     0.3333     0.5774
    """
    width = max(6, *(len(row["name"]) for row in metrics["numbers"]))
    heads = ("mean", "std", "R²", "MAE", "RMSE")
    lines = [f"{'number':<{width}}  images" + "".join(f"  {head:>9}" for head in heads)]
    show = lambda value: "        -" if value is None else f"{value:9.4g}"
    for row in metrics["numbers"]:
        numbers = "".join(f"  {show(row[key])}" for key in FIGURES[:-1])
        lines.append(f"{row['name']:<{width}}  {row['images']:>6}{numbers}")
    return "\n".join(lines)


def number_headline(metrics: dict[str, Any]) -> str:
    """The line that a run of numbers ends with."""
    r2 = "-" if metrics["r2"] is None else f"{metrics['r2']:.4f}"
    mae = "-" if metrics["mae"] is None else f"{metrics['mae']:.4g}"
    return f"R² {r2}, mean absolute error {mae} of {metrics['images']} held-out images"


def _row(name, predicted, true):
    if not len(true):
        return {"name": name, "images": 0, **dict.fromkeys(FIGURES), "points": []}
    metrics = extras.require("sklearn.metrics", extra="data", purpose="Judging numbers")
    values = (
        true.mean(),
        true.std(),
        metrics.r2_score(true, predicted) if np.ptp(true) else None,
        metrics.mean_absolute_error(true, predicted),
        metrics.root_mean_squared_error(true, predicted),
        (predicted - true).mean(),
    )
    numbers = {key: None if v is None else float(v) for key, v in zip(FIGURES, values)}
    points = np.stack([true, predicted], axis=1)[:: -(-len(true) // POINTS)]
    return {"name": name, "images": len(true), **numbers, "points": points.tolist()}


POINTS = 1000
FIGURES = ("mean", "std", "r2", "mae", "rmse", "mean_error")
