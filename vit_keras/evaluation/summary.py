"""Evaluates one predictor on one data set, and summarizes several runs."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras import data
from vit_keras.evaluation.calibration import measure_calibration
from vit_keras.evaluation.classification import check_classes
from vit_keras.evaluation.imagenet_real import read_real_labels, real_accuracy
from vit_keras.evaluation.mask_prediction import MaskOptions, judge_masks
from vit_keras.evaluation.predictions import check_suffix, write_predictions
from vit_keras.evaluation.predictors import Predictor
from vit_keras.evaluation.reports import report

# How `summary_line` shows the figures of a report: name, factor, unit.
SHOWN = {
    "accuracy": ("accuracy", 100, "%"),
    "top_5_accuracy": ("top-5", 100, "%"),
    "real_accuracy": ("ReaL", 100, "%"),
    "balanced_accuracy": ("balanced accuracy", 100, "%"),
    "macro_f1": ("macro F1", 100, "%"),
    "micro_f1": ("micro F1", 100, "%"),
    "average_precision": ("mean average precision", 100, "%"),
    "miou": ("mean IoU", 100, "%"),
    "pixel_accuracy": ("pixel accuracy", 100, "%"),
    "mean_class_accuracy": ("mean class accuracy", 100, "%"),
    "r2": ("R²", 1, ""),
    "mae": ("mean absolute error", 1, ""),
    "rmse": ("root mean square error", 1, ""),
    "ece": ("calibration error", 100, "%"),
    "images_per_second": ("images per second", 1, ""),
}


def evaluate(
    predictor: Predictor,
    split: "data.Split",
    class_names: Sequence[str],
    *,
    batch: int,
    real: str | os.PathLike | None = None,
    predictions: str | os.PathLike | None = None,
    ignore_class_names: bool = False,
    masks: MaskOptions | None = None,
) -> dict[str, Any]:
    """Evaluates a predictor: a `report` with calibration, speed, and ReaL accuracy.

    Args:
        predictor: From `open_predictor` or `make_predictor`.
        split: A `data.Split`.
        class_names: The names of the data set's classes.
        batch: The number of images per batch.
        real: The published `real.json`, for the ReaL accuracy.
        predictions: A .parquet or .csv file to write the predictions to.
        ignore_class_names: Whether to accept classes that the model names differently.
        masks: How a model of masks predicts pictures of other sizes, in batches of its own.

    Returns:
        A `report` with "images_per_second"; for classes, with "calibration" and "ece", and, with
        `real`, "real_accuracy" and "real_images".

    Raises:
        ValueError: If the classes, the ReaL labels, or the file's suffix do not fit. This is
            checked before the first image is read.

    Example:
        ```python
        predictor, _ = evaluation.open_predictor("runs/mine")
        dataset = data.load("folder:pictures", channels=3)
        metrics = evaluation.evaluate(
            predictor, dataset.split("test"), dataset.class_names, batch=32
        )
        print(evaluation.summary_line(metrics))
        ```
    """
    check_classes(predictor, class_names, ignore_class_names)
    paths = split.origin and [split.origin.name(index) for index in range(len(split))]
    if predictions is not None:
        check_suffix(predictions)
    real_labels = None
    if real:
        real_labels = read_real_labels(real, len(split), predictor.num_classes, paths)
    if predictor.task.kind == "masks":
        return judge_masks(predictor, split, class_names, masks)
    with split.reading():
        predicted = predictor.predict(predictor.batches(split, batch))
    metrics = report(predicted.probabilities, predicted.labels, class_names, predictor.task, True)
    if predictor.task.kind == "classes":
        metrics["calibration"] = measure_calibration(predicted.probabilities, predicted.labels)
        metrics["ece"] = metrics["calibration"]["ece"]
    metrics["images_per_second"] = predicted.images_per_second
    if real_labels is not None:
        best = predicted.probabilities.argmax(axis=-1)
        metrics["real_accuracy"], metrics["real_images"] = real_accuracy(best, real_labels)
    if predictions is not None:
        names = predictor.class_names or class_names
        write_predictions(
            *(predictions, predicted.probabilities, predicted.labels, paths),
            task=predictor.task,
            names=names,
        )
    return metrics


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean and the standard deviation of a sample (over n − 1; 0 for one value).

    Example:
        >>> mean_and_std([1.0, 2.0, 3.0])
        (2.0, 1.0)
    """
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def summarize(reports: Sequence[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Returns the mean and standard deviation over runs of each number that all of them have.

    Example:
        >>> summary_line(summarize([{"accuracy": 0.8}, {"accuracy": 0.9}]))
        'accuracy 85.00 ± 7.07%'
    """
    shared = [key for key, value in reports[0].items() if isinstance(value, float)]
    return {
        key: mean_and_std([metrics[key] for metrics in reports])
        for key in shared
        if all(isinstance(metrics.get(key), float) for metrics in reports)
    }


def summary_line(metrics: dict[str, Any]) -> str:
    """Formats the numbers of `evaluate`, or the means and deviations of `summarize`.

    Example:
        >>> summary_line({"accuracy": 0.975, "ece": 0.0123})
        'accuracy 97.50%, calibration error 1.23%'
    """
    texts = []
    for key, value in metrics.items():
        if isinstance(value, float | tuple):
            name, factor, unit = SHOWN.get(key, (key, 100, "%"))
            numbers = value if isinstance(value, tuple) else (value,)
            texts.append(f"{name} {' ± '.join(f'{factor * x:.2f}' for x in numbers)}{unit}")
    return ", ".join(texts)
