"""Reports on models: one row of `REPORTS` for each kind of label."""

import json
import os
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_keras import data
from vit_keras.evaluation.answers import check_suffix, write_predictions
from vit_keras.evaluation.box_prediction import (
    NONE,
    box_headline,
    box_table,
    judge_boxes,
    report_boxes,
)
from vit_keras.evaluation.conformal import measure_coverage
from vit_keras.evaluation.mask_prediction import (
    TileOptions,
    judge_masks,
    mask_headline,
    mask_table,
    report_masks,
)
from vit_keras.evaluation.metrics import (
    class_headline,
    class_table,
    label_headline,
    label_table,
    measure_calibration,
    number_headline,
    number_table,
    percent,
    report_classes,
    report_labels,
    report_numbers,
)
from vit_keras.evaluation.predictors import Predictor
from vit_keras.support import figures
from vit_keras.support.boxes import FIGURES
from vit_keras.support.command_line import visible
from vit_keras.support.tasks import CLASSES, KINDS, Task

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
        ValueError: If the file has a different number of lists or labels outside of the classes, or
            if the images come from TensorFlow Datasets, which has a different order.

    Example:
        ```python
        labels = evaluation.read_real_labels("real.json", images=50_000, num_classes=1000)
        accuracy, images = evaluation.real_accuracy(logits.argmax(axis=-1), labels)
        ```
    """
    labels = _read(path)
    names = [FILE_NAME.search(os.path.basename(name)) for name in paths or ()]
    named = bool(names) and all(names)
    if not named and any(name.startswith("tfds:") for name in paths or ()):
        raise ValueError(
            "ReaL labels follow the names of ImageNet's files, which TensorFlow Datasets does not "
            "keep in order. Received: images from TensorFlow Datasets. Give the validation images "
            "as folder:PATH"
        )
    order = [int(name[1]) - 1 for name in names if name] if named else range(images)
    if max(order, default=-1) >= len(labels) or (not named and len(labels) != images):
        raise ValueError(
            f"{os.fspath(path)!r} must have one list of labels for each image. "
            f"Received: {len(labels)} lists for {max(order, default=-1) + 1} images"
        )
    if outside := sorted(set().union(*labels) - set(range(num_classes))):
        raise ValueError(
            f"ReaL labels must lie in [0, {num_classes}), the model's classes. "
            f"Received: {outside[:5]} in {os.fspath(path)!r}"
        )
    return [labels[i] for i in order]


def _read(path):
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There are no ReaL labels at {os.fspath(path)!r}.")
    try:
        with open(path) as file:
            return [set(map(int, row)) for row in json.load(file)]
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{os.fspath(path)!r} must be a JSON list of lists of labels ({error})"
        ) from error


def real_accuracy(predicted: np.ndarray, labels: Sequence[set[int]]) -> tuple[float, int]:
    """Computes the ReaL accuracy; images without labels are left out, as in the paper.

    Args:
        predicted: The predicted classes, `(N,)`.
        labels: A set of labels per image.

    Returns:
        The share of images whose predicted class is among their labels, and the number of images
        that count.

    Raises:
        ValueError: If no image has a label.

    Example:
        >>> real_accuracy(np.array([3, 5, 0]), [{3, 4}, {1}, set()])  # the last one does not count
        (0.5, 2)
    """
    right = [int(best) in fitting for best, fitting in zip(predicted, labels) if fitting]
    if not right:
        raise ValueError(
            f"At least one image must have a ReaL label. Received: {len(labels)} empty lists"
        )
    return float(np.mean(right)), len(right)


class Report(NamedTuple):
    """How to judge a kind of label.

    Attributes:
        judge: Maps outputs, labels, names and the `Task` to a report.
        table: Formats a report for a terminal.
        headline: Formats the last line of a run.
        draw: Draws figures of a report into a folder, given the data's name, and returns the files.
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


def _draw_boxes(metrics, folder, source):
    file = folder / "confusion.png"
    names = [*(row["name"] for row in metrics["boxes"]), NONE]
    figures.confusion(metrics["confusion_matrix"], names, file, source)
    return [file]


def _draw_numbers(metrics, folder, source):
    file = folder / "errors.png"
    figures.number_errors(metrics["numbers"], file, source)
    return [file]


REPORTS = {
    "classes": Report(
        report_classes,
        class_table,
        class_headline,
        _draw_classes,
    ),
    "labels": Report(report_labels, label_table, label_headline, _draw_labels),
    "numbers": Report(report_numbers, number_table, number_headline, _draw_numbers),
    "masks": Report(report_masks, mask_table, mask_headline, _draw_masks),
    "boxes": Report(report_boxes, box_table, box_headline, _draw_boxes),
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
        outputs: `(N, K)` logits, or probabilities with `gives_probabilities`, or predicted numbers;
            for masks, `(N, H, W, K)`.
        labels: `(N,)` integers for classes; `(N, H, W)` for masks; otherwise `(N, K)` with NaN for
            unknown ones.
        class_names: The K names.
        task: What the outputs are.
        gives_probabilities: Whether the outputs are probabilities instead of logits, as in
            `Predictor`. Labels are judged at thresholds of probabilities.

    Returns:
        For classes, "accuracy" and others, see `report_classes`; for labels,
        "average_precision" and others, see `report_labels`; for numbers, "r2" and others, see
        `report_numbers`; for masks, "miou" and others, see `report_matrix`.

    Raises:
        ValueError: If there are no images, if a label lies outside the K classes, or if there are
            not K names.

    Example:
        >>> logits = np.array([[2.0, 1.0], [3.0, 1.0], [0.0, 1.0]])
        >>> report(logits, np.array([0, 1, 1]), ["cat", "dog"])["confusion_matrix"]
        [[1, 0], [1, 1]]
    """
    if task.kind == "boxes":
        raise ValueError(
            "Boxes are judged in the pixels of their pictures. Received: task boxes. Use "
            "`evaluation.judge_boxes` on a split, or `evaluation.report_boxes`"
        )
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
    lines = [REPORTS[_kind(metrics)].table(metrics)]
    lines += [
        f"coverage {row['coverage']:.0%}: {percent(row['covered'])} held the truth, mean size "
        f"{'-' if row['size'] is None else format(row['size'], '.4g')}"
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
        line, chose = REPORTS[_kind(metrics)].headline(metrics), metrics.get("images_chose")
        return f"{line}, which chose the {chose}" if chose else line
    percent = lambda row: f"{100 * row['mean']:.2f} ± {100 * row['std']:.2f}%"
    return "\n".join(
        f"{after['shots']}-shot accuracy {percent(before)} before, {percent(after)} after"
        for before, after in zip(metrics["fewshot_before"], metrics["fewshot"])
    )


def main_figure(metrics: dict[str, Any]) -> float:
    """Returns the main metric of a report; higher is better.

    Example:
        >>> main_figure({"accuracy": 0.975, "images": 360})
        0.975
    """
    return metrics[KINDS[_kind(metrics)].metric]


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
    return REPORTS[_kind(metrics)].draw(metrics, pathlib.Path(folder), source)


def _kind(metrics):
    """Returns the kind of label that a report is about."""
    return next(kind for kind, row in KINDS.items() if row.metric in metrics)


# How to judge answers in the pixels of pictures, by the kind of label.
OF_PICTURES = {"masks": judge_masks, "boxes": judge_boxes}
# How `summary_line` shows the metrics of a report: name, factor, unit.
SHOWN = {
    "accuracy": ("accuracy", 100, "%"),
    "top_5_accuracy": ("top-5", 100, "%"),
    "real_accuracy": ("ReaL", 100, "%"),
    "balanced_accuracy": ("balanced accuracy", 100, "%"),
    "macro_f1": ("macro F1", 100, "%"),
    "micro_f1": ("micro F1", 100, "%"),
    "average_precision": ("mean average precision", 100, "%"),
    "miou": ("mean IoU", 100, "%"),
    **{name: (name.replace("_", " ").replace("ap", "AP"), 100, "%") for name in FIGURES},
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
    tiles: TileOptions | None = None,
) -> dict[str, Any]:
    """Evaluates a predictor; adds calibration, speed, and ReaL accuracy to a `report`.

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

    Returns:
        A `report` with "images_per_second"; with "coverage" from `measure_coverage` if the model's
        task has quantiles; for classes, with "calibration" and "ece", and, with
        `real`, "real_accuracy" and "real_images".

    Raises:
        ValueError: If the classes, the ReaL labels, or the file's suffix do not fit, or if
            `predictions` is set for masks or boxes. All of them are checked before the first image
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
    paths = split.name and [split.name(index) for index in range(len(split))]
    if predictions is not None:
        check_suffix(predictions)
    real_labels = None
    if real:
        real_labels = read_real_labels(real, len(split), predictor.num_classes, paths)
    if judge := OF_PICTURES.get(predictor.task.kind):
        if predictions is not None:
            raise ValueError(
                "`predictions` holds a row of probabilities or numbers for each picture. Received: "
                f"a model of {predictor.task.kind}. `vit-keras predict` writes those"
            )
        return judge(predictor, split, class_names, tiles)
    with split.reading():
        predicted = predictor.predict(predictor.batches(split, batch))
    metrics = report(predicted.probabilities, predicted.labels, class_names, predictor.task, True)
    if predictor.task.kind == "classes":
        metrics["calibration"] = measure_calibration(predicted.probabilities, predicted.labels)
        metrics["ece"] = metrics["calibration"]["ece"]
    if predictor.task.quantiles:
        answers = predicted.probabilities, predicted.labels
        metrics["coverage"] = measure_coverage(*answers, predictor.task)
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


def check_classes(predictor: Predictor, class_names: Sequence[str], ignore_names: bool) -> None:
    """Checks that a data set has the predictor's classes.

    Raises:
        ValueError: If the number of classes or, without `ignore_names`, a name differs.
    """
    if len(class_names) != predictor.num_classes:
        raise ValueError(
            f"The data set must have the model's {predictor.num_classes} classes. "
            f"Received: a data set with {len(class_names)}"
        )
    names = predictor.class_names or class_names
    different = [k for k, (a, b) in enumerate(zip(names, class_names)) if str(a) != str(b)]
    if different and not ignore_names:
        k = different[0]
        raise ValueError(
            "The classes of the model and of the data set must be the same, in the same order. "
            f"Received: {len(different)} that differ, such as class {k}, {names[k]!r} in the model "
            f"and {class_names[k]!r} in the data set. If only the names differ, and not the "
            "order, give --ignore_class_names"
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
    shared = [key for key, value in reports[0].items() if isinstance(value, float)]
    return {
        key: mean_and_std([metrics[key] for metrics in reports])
        for key in shared
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
            name, factor, unit = SHOWN.get(key, (key, 100, "%"))
            numbers = value if isinstance(value, tuple) else (value,)
            texts.append(f"{name} {' ± '.join(f'{factor * x:.2f}' for x in numbers)}{unit}")
    return ", ".join(texts)
