"""The reports on models: one row of `REPORTS` for each kind of label."""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_keras import figures
from vit_keras.evaluation import classification, labels, masks, numbers
from vit_keras.tasks import CLASSES, KINDS, Task
from vit_keras.visible import visible


class Report(NamedTuple):
    """How a kind of label is judged.

    Attributes:
        judge: Maps outputs, labels, names and the `Task` to a report.
        table: Formats a report for a terminal.
        headline: Formats the line that a run ends with.
        draw: Draws figures of a report into a folder, given what the data are called, and returns
            the files.
    """

    judge: Callable[..., dict[str, Any]]
    table: Callable[[dict[str, Any]], str]
    headline: Callable[[dict[str, Any]], str]
    draw: Callable[[dict[str, Any], pathlib.Path, str], list[pathlib.Path]]


def _draw_classes(metrics, folder, source):
    matrix, reliability = folder / "confusion.png", folder / "reliability.png"
    names = [row["name"] for row in metrics["classes"]]
    figures.confusion(metrics["confusion_matrix"], names, matrix, source)
    figures.reliability(metrics["calibration"], reliability, source)
    return [matrix, reliability]


def _draw_labels(metrics, folder, source):
    file = folder / "labels.png"
    figures.label_bars(metrics["labels"], file, source)
    return [file]


def _draw_masks(metrics, folder, source):
    file = folder / "confusion.png"
    names = [row["name"] for row in metrics["masks"]]
    figures.confusion(metrics["confusion_matrix"], names, file, source)
    return [file]


def _draw_numbers(metrics, folder, source):
    file = folder / "errors.png"
    figures.number_errors(metrics["numbers"], file, source)
    return [file]


REPORTS = {
    "classes": Report(
        classification.report_classes,
        classification.class_table,
        classification.class_headline,
        _draw_classes,
    ),
    "labels": Report(labels.report_labels, labels.label_table, labels.label_headline, _draw_labels),
    "numbers": Report(
        numbers.report_numbers, numbers.number_table, numbers.number_headline, _draw_numbers
    ),
    "masks": Report(masks.report_masks, masks.mask_table, masks.mask_headline, _draw_masks),
}


def report(
    outputs: np.ndarray,
    labels: np.ndarray,
    class_names: Sequence[str],
    task: Task = CLASSES,
    gives_probabilities: bool = False,
) -> dict[str, Any]:
    """Judges a model by its outputs.

    Args:
        outputs: `(N, K)`: logits, or with `gives_probabilities` the probabilities, or the predicted
            numbers; for masks, `(N, H, W, K)`.
        labels: `(N,)` integers for classes; `(N, H, W)` for masks; otherwise `(N, K)` with NaN for
            unknown ones.
        class_names: The K names.
        task: What the outputs are.
        gives_probabilities: Whether the outputs are probabilities instead of logits, as
            `Predictor.gives_probabilities` says. Labels are judged at thresholds of probabilities.

    Returns:
        For classes, "accuracy" and others, see `classification.report_classes`; for labels,
        "average_precision" and others, see `labels.report_labels`; for numbers, "r2" and others,
        see `numbers.report_numbers`; for masks, "miou" and others, see `masks.report_matrix`.

    Raises:
        ValueError: If there are no images, if a label lies outside the K classes, or if there are
            not K names.

    Example:
        >>> logits = np.array([[2.0, 1.0], [3.0, 1.0], [0.0, 1.0]])
        >>> report(logits, np.array([0, 1, 1]), ["cat", "dog"])["confusion_matrix"]
        [[1, 0], [1, 1]]
    """
    if len(labels) == 0:
        raise ValueError("An evaluation needs at least one image. Received: none")
    if len(class_names) != outputs.shape[-1]:
        raise ValueError(
            f"The model's {outputs.shape[-1]} {task.kind} need as many names. "
            f"Received: {len(class_names)} names"
        )
    told = {"gives_probabilities": gives_probabilities} if task.kind == "labels" else {}
    return REPORTS[task.kind].judge(outputs, labels, class_names, task, **told)


def report_table(metrics: dict[str, Any]) -> str:
    """Formats a `report` for a terminal: one line per class, label or number.

    Example:
        >>> logits = np.array([[2.0, 1.0], [3.0, 1.0], [0.0, 1.0]])
        >>> print(report_table(report(logits, np.array([0, 1, 1]), ["cat", "dog"])))
        class  images  precision   recall
        cat         1     50.00%  100.00%
        dog         2    100.00%   50.00%
        accuracy 66.67% of 3 images
    """
    return visible(REPORTS[_kind(metrics)].table(metrics))


def headline(metrics: dict[str, Any]) -> str:
    """Returns the lines that a run ends with, for a `report` or a `FewShotCallback.gain`.

    Example:
        >>> headline({"accuracy": 0.975, "images": 360})
        'accuracy 97.50% of 360 held-out images'
    """
    if not metrics:
        return "no few-shot evaluation: `fewshot_every` is 0"
    if "fewshot" not in metrics:
        line, chose = REPORTS[_kind(metrics)].headline(metrics), metrics.get("images_chose")
        return f"{line}, which chose the {chose}" if chose else line
    percent = lambda row: f"{100 * row['mean']:.2f} ± {100 * row['std']:.2f}%"
    return "\n".join(
        f"{after['shots']}-shot accuracy {percent(before)} before, {percent(after)} after"
        for before, after in zip(metrics["fewshot_before"], metrics["fewshot"])
    )


def main_figure(metrics: dict[str, Any]) -> float:
    """Returns the figure that heads a report, of which more is better.

    Example:
        >>> main_figure({"accuracy": 0.975, "images": 360})
        0.975
    """
    return metrics[KINDS[_kind(metrics)].metric]


def draw_report(
    metrics: dict[str, Any], folder: str | os.PathLike, source: str = ""
) -> list[pathlib.Path]:
    """Draws the figures of a report by `evaluate`.

    Args:
        metrics: The report.
        folder: The folder of the PNG files.
        source: What the data set is called, which heads the figures.

    Returns:
        The files.

    Raises:
        ImportError: If matplotlib is not installed.

    Example:
        ```python
        metrics = evaluation.evaluate(predictor, split, class_names, batch=32)
        evaluation.draw_report(metrics, "report")
        ```
    """
    return REPORTS[_kind(metrics)].draw(metrics, pathlib.Path(folder), source)


def _kind(metrics):
    """The kind of label that a report is about."""
    return next(kind for kind, row in KINDS.items() if row.metric in metrics)
