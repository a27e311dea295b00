"""Everything about one predictor and one data set, and about several runs together."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras import data
from vit_keras.evaluation.calibration import measure_calibration
from vit_keras.evaluation.classification import check_classes, report
from vit_keras.evaluation.imagenet_real import read_real_labels, real_accuracy
from vit_keras.evaluation.predictions import write_predictions, writer_of
from vit_keras.evaluation.predictors import Predictor

# What a line calls the figures of a report: name, factor, unit.
SHOWN = {
    "accuracy": ("accuracy", 100, "%"),
    "top_5_accuracy": ("top-5", 100, "%"),
    "real_accuracy": ("ReaL", 100, "%"),
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
) -> dict[str, Any]:
    """A `report` with calibration, speed and, where `real` names its labels, ReaL accuracy.

    `predictions` is a .parquet or .csv file to write. What does not fit raises ValueError before
    the first image is looked at.
    """
    check_classes(predictor, class_names, ignore_class_names)
    paths = split.origin and [split.origin.name(index) for index in range(len(split))]
    if predictions is not None:
        writer_of(predictions)
    sets = real and read_real_labels(real, len(split), predictor.num_classes, paths)
    found = predictor.predict(predictor.batches(split, batch))
    rows = report(found.probabilities, found.labels, class_names)
    rows["calibration"] = measure_calibration(found.probabilities, found.labels)
    rows["ece"] = rows["calibration"]["ece"]
    rows["images_per_second"] = found.images_per_second
    if real:
        best = found.probabilities.argmax(axis=-1)
        rows["real_accuracy"], rows["real_images"] = real_accuracy(best, sets)
    if predictions is not None:
        write_predictions(predictions, found.probabilities, found.labels, paths)
    return rows


def headline(found: dict[str, Any]) -> str:
    """What a run says at its end, of a `report` or of a `FewShotCallback.gain`."""
    if "accuracy" in found:
        return f"accuracy {100 * found['accuracy']:.2f}% of {found['images']} held-out images"
    if not found:
        return "no few-shot evaluation: `fewshot_every` is 0"
    percent = lambda row: f"{100 * row['mean']:.2f} ± {100 * row['std']:.2f}%"
    return "\n".join(
        f"{after['shots']}-shot accuracy {percent(before)} before, {percent(after)} after"
        for before, after in zip(found["fewshot_before"], found["fewshot"])
    )


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation of a sample (n − 1), which is 0 of one value."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def summarise(reports: Sequence[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation over runs, for each single figure that all of them have."""
    shared = [key for key, value in reports[0].items() if isinstance(value, float)]
    return {
        key: mean_and_std([found[key] for found in reports])
        for key in shared
        if all(isinstance(found.get(key), float) for found in reports)
    }


def summary_line(found: dict[str, Any]) -> str:
    """The figures of one evaluation, or of several as mean ± standard deviation, on one line."""
    texts = []
    for key, value in found.items():
        if isinstance(value, float | tuple):
            name, factor, unit = SHOWN.get(key, (key, 100, "%"))
            numbers = value if isinstance(value, tuple) else (value,)
            texts.append(f"{name} {' ± '.join(f'{factor * x:.2f}' for x in numbers)}{unit}")
    return ", ".join(texts)
