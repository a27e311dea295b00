"""Reports on models: one row of `REPORTS` for each kind of label."""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_keras import data
from vit_keras.evaluation.box_prediction import NONE, judge_boxes
from vit_keras.evaluation.conformal import measure_coverage
from vit_keras.evaluation.mask_prediction import TileOptions, judge_masks, refuse_tiles
from vit_keras.evaluation.metrics import (
    measure_calibration,
    read_real_labels,
    real_accuracy,
    report_classes,
    report_labels,
    report_numbers,
)
from vit_keras.evaluation.output_files import WRITERS, write_predictions
from vit_keras.evaluation.predictors import Predictor, sigmoid
from vit_keras.support import figures
from vit_keras.support.checks import check_choice
from vit_keras.support.command_line import aligned, visible
from vit_keras.support.tasks import CLASSES, KINDS, Task, figure_line, figure_name, figure_text

OF_PICTURES = ("masks", "boxes")  # kinds that are judged in the pixels of pictures


class Report(NamedTuple):
    """How to judge a kind of label, and how to show the report.

    Attributes:
        judge: Maps outputs, labels, names and the `Task` to a report; for `OF_PICTURES`, takes
            what `evaluate` passes on.
        columns: The values of each class, label or number that a table in a terminal shows.
        figures: The figures in the last line.
        drawings: For each figure's file, a function that draws it, and the entry of the report that
            it draws; None for the whole report.
    """

    judge: Callable[..., dict[str, Any]]
    columns: tuple[str, ...]
    figures: tuple[str, ...]
    drawings: Mapping[str, tuple[Callable[..., None], str | None]]


def _confusion(metrics, file, source):
    matrix, names = metrics["confusion_matrix"], [row["name"] for row in metrics[_kind(metrics)]]
    names += [NONE] * (len(matrix) - len(names))  # missed objects and false alarms
    figures.confusion(matrix, names, file, source)


SHARES = ("precision", "recall")
CONFUSION = {"confusion.png": (_confusion, None)}
REPORTS = {
    "classes": Report(
        report_classes,
        ("images", *SHARES),
        ("accuracy",),
        CONFUSION | {"reliability.png": (figures.reliability, "calibration")},
    ),
    "labels": Report(
        report_labels,
        ("images", "positives", "average_precision", "threshold", *SHARES, "f1"),
        ("average_precision", "macro_f1", "micro_f1"),
        {"labels.png": (figures.label_bars, "labels")},
    ),
    "numbers": Report(
        report_numbers,
        ("images", "mean", "std", "r2", "mae", "rmse"),
        ("r2", "mae"),
        {"errors.png": (figures.number_errors, "numbers")},
    ),
    "masks": Report(judge_masks, ("pixels", "iou", *SHARES), ("miou", "pixel_accuracy"), CONFUSION),
    "boxes": Report(
        judge_boxes,
        ("objects", "ap", "ap50", *SHARES, "threshold"),
        ("ap", "ap50", "ap75"),
        CONFUSION,
    ),
}


def _last_line(metrics, images="images"):
    texts = [figure_line(key, metrics[key]) for key in REPORTS[_kind(metrics)].figures]
    return f"{', '.join(texts)} of {metrics['images']} {images}"


def report(
    outputs: np.ndarray,
    labels: np.ndarray,
    class_names: Sequence[str],
    task: Task = CLASSES,
    gives_probabilities: bool = False,
) -> dict[str, Any]:
    """Judges a model by its outputs.

    Args:
        outputs: `(N, K)` logits, or probabilities with `gives_probabilities`, or predicted numbers.
        labels: `(N,)` integers for classes, otherwise `(N, K)` with NaN for unknown ones.
        class_names: The K names.
        task: What the outputs are.
        gives_probabilities: Whether the outputs are probabilities instead of logits, as in
            `Predictor`. Labels are judged at thresholds of probabilities.

    Returns:
        For classes, "accuracy" and others (see `report_classes`); for labels,
        "average_precision" and others (see `report_labels`); for numbers, "r2" and others (see
        `report_numbers`).

    Raises:
        ValueError: If a label lies outside the K classes, if there are not K names, or if the task
            is masks or boxes, which `evaluate` judges.

    Example:
        >>> logits = np.array([[2.0, 1.0], [3.0, 1.0], [0.0, 1.0]])
        >>> report(logits, np.array([0, 1, 1]), ["cat", "dog"])["confusion_matrix"]
        [[1, 0], [1, 1]]
    """
    if task.kind in OF_PICTURES:
        raise ValueError(
            "Masks and boxes are judged in the pixels of their pictures. Received: task "
            f"{task.kind}. Use `evaluation.evaluate` on a split"
        )
    if len(class_names) != outputs.shape[-1]:
        raise ValueError(
            f"{outputs.shape[-1]} {task.kind} need as many names. Received: {len(class_names)}"
        )
    if task.kind == "labels" and not gives_probabilities:
        outputs = sigmoid(outputs)
    return REPORTS[task.kind].judge(outputs, labels, class_names, task)


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
    kind = _kind(metrics)
    keys = REPORTS[kind].columns
    rows = [[row["name"], *(figure_text(key, row[key]) for key in keys)] for row in metrics[kind]]
    lines = aligned([[KINDS[kind].one, *map(figure_name, keys)], *rows])
    lines.append(_last_line(metrics))
    lines += [
        f"coverage {row['coverage']:.0%}: {figure_text('covered', row['covered'])} include the "
        f"truth, mean size {figure_text('size', row['size'])}"
        for row in metrics.get("coverage", ())
    ]
    return visible("\n".join(lines))


def headline(metrics: dict[str, Any]) -> str:
    """Returns the last lines of a run, for a `report` or a `FewShotCallback.gain`.

    Example:
        >>> headline({"accuracy": 0.975, "images": 360})
        'accuracy 97.50% of 360 held-out images'
    """
    if not metrics:
        return "no few-shot evaluation: `fewshot_every` is 0"
    if "fewshot" not in metrics:
        line, chose = _last_line(metrics, "held-out images"), metrics.get("images_chose")
        return f"{line}, which chose the {chose}" if chose else line
    text = lambda row: figure_text("accuracy", row["mean"], row["std"])
    return "\n".join(
        f"{after['shots']}-shot accuracy {text(before)} before, {text(after)} after"
        for before, after in zip(metrics["fewshot_before"], metrics["fewshot"])
    )


def main_figure(metrics: dict[str, Any]) -> float:
    """Returns the main metric of a report; higher is better.

    Raises:
        ValueError: If the metric is undefined for the images.

    Example:
        >>> main_figure({"accuracy": 0.975, "images": 360})
        0.975
    """
    metric = main_metric(metrics)
    if metrics[metric] is None:
        raise ValueError(
            f"Models are compared by their {figure_name(metric)}, which these images leave "
            f"undefined. Received: {metrics['images']} images. Hold out more of them"
        )
    return metrics[metric]


def main_metric(metrics: dict[str, Any]) -> str:
    """Returns the key of the main metric of a report."""
    return KINDS[_kind(metrics)].metric


def draw_report(
    metrics: dict[str, Any], folder: str | os.PathLike, source: str = ""
) -> list[pathlib.Path]:
    """Draws the figures of a report from `evaluate`.

    Args:
        metrics: The report.
        folder: The folder of the PNG files.
        source: The data set's name, for the figures' titles.

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
    files = []
    for name, (draw, key) in REPORTS[_kind(metrics)].drawings.items():
        files.append(pathlib.Path(folder, name))
        draw(metrics[key] if key else metrics, files[-1], source)
    return files


def _kind(metrics):
    """Returns the kind of label that a report is about."""
    return next(kind for kind, row in KINDS.items() if row.metric in metrics)


def evaluate(
    predictor: Predictor,
    split: "data.Split",
    class_names: Sequence[str],
    *,
    batch: int,
    real: str | os.PathLike | None = None,
    predictions: str | os.PathLike | None = None,
    ignore_class_names: bool = False,
    tiles: TileOptions | None = None,
    sheet: str | os.PathLike | None = None,
) -> dict[str, Any]:
    """Evaluates a predictor; adds calibration and ReaL accuracy to a `report`.

    Args:
        predictor: From `open_predictor` or `make_predictor`.
        split: A `data.Split`.
        class_names: The names of the data set's classes.
        batch: The number of images per batch.
        real: The published `real.json`, for the ReaL accuracy.
        predictions: A .parquet or .csv file to write the predictions to.
        ignore_class_names: Whether to accept class names that differ from the model's.
        tiles: How a model of masks or boxes predicts pictures of other sizes; has its own batch
            size.
        sheet: For masks and boxes, a PNG file in which to draw pictures with their predictions: the
            first eight with their masks, or the eight with the most errors.

    Returns:
        A `report` with "coverage" from `measure_coverage` if the model's task has quantiles; for
        classes, with "calibration" and "ece", and, with `real`, "real_accuracy" and "real_images".

    Raises:
        ValueError: If the classes, the ReaL labels, or the file's suffix do not fit, or if
            `predictions` is set for masks or boxes. All of this is checked before the first image
            is read.

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
    paths = split.source.files and [split.name(index) for index in range(len(split))]
    if predictions is not None:
        check_choice(pathlib.Path(predictions).suffix[1:], WRITERS, "suffix")
    asked = len(split), predictor.num_classes, paths
    real_labels = read_real_labels(real, *asked) if real else None
    if predictor.task.kind in OF_PICTURES:
        if predictions is not None:
            raise ValueError(
                "`predictions` needs a model of classes, labels or numbers. Received: a model of "
                f"{predictor.task.kind}. Write {predictor.task.kind} with `vit-keras predict`"
            )
        return REPORTS[predictor.task.kind].judge(predictor, split, class_names, tiles, sheet)
    refuse_tiles(tiles, predictor.task.kind)
    outputs, labels = predictor.outputs(predictor.batches(split, batch))
    shares, task = predictor.as_probabilities(outputs), predictor.task
    read = [*map(split.replacement, range(len(split)))]
    metrics = report(shares, labels, class_names, task, True)
    if task.kind == "classes":
        metrics["calibration"] = measure_calibration(shares, labels)
        metrics["ece"] = metrics["calibration"]["ece"]
    if task.quantiles:
        metrics["coverage"] = measure_coverage(shares, labels, task)
    if real_labels is not None:
        best, of_read = shares.argmax(axis=-1), [real_labels[i] for i in read]
        metrics["real_accuracy"], metrics["real_images"] = real_accuracy(best, of_read)
    if predictions is not None:
        paths = paths and [paths[i] for i in read]
        names = predictor.class_names or class_names
        write_predictions(predictions, shares, labels, paths, task=task, names=names)
    return metrics


def check_classes(predictor: Predictor, class_names: Sequence[str], ignore_names: bool) -> None:
    """Checks that a data set has the predictor's classes.

    Raises:
        ValueError: If the number of classes or, without `ignore_names`, a name differs.
    """
    if len(class_names) != predictor.num_classes:
        raise ValueError(
            f"The data set must have the model's {predictor.num_classes} classes. "
            f"Received: a data set with {len(class_names)} classes"
        )
    names = predictor.class_names or class_names
    different = [k for k, (a, b) in enumerate(zip(names, class_names)) if str(a) != str(b)]
    if different and not ignore_names:
        k = different[0]
        raise ValueError(
            "The classes of the model and of the data set must be the same, in the same order. "
            f"Received: {len(different)} that differ, such as class {k}, {names[k]!r} in the model "
            f"and {class_names[k]!r} in the data. If only names differ, give --ignore_class_names"
        )


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean and the standard deviation of a sample (over n − 1; 0 for one value).

    Example:
        >>> mean_and_std([1.0, 2.0, 3.0])
        (2.0, 1.0)
    """
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def summarize(reports: Sequence[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Returns the mean and standard deviation over runs of each number that they all have.

    Example:
        >>> summary_line(summarize([{"accuracy": 0.8}, {"accuracy": 0.9}]))
        'accuracy 85.00 ± 7.07%'
    """
    return {
        key: mean_and_std([metrics[key] for metrics in reports])
        for key in reports[0]
        if all(isinstance(metrics.get(key), float) for metrics in reports)
    }


def summary_line(metrics: dict[str, Any]) -> str:
    """Formats the metrics of `evaluate`, or the means and deviations of `summarize`.

    Example:
        >>> summary_line({"accuracy": 0.975, "ece": 0.0123})
        'accuracy 97.50%, calibration error 1.23%'
    """
    texts = []
    for key, value in metrics.items():
        if isinstance(value, float | tuple):
            texts.append(figure_line(key, *(value if isinstance(value, tuple) else (value,))))
    return ", ".join(texts)
