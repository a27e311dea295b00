"""Measures accuracy, for all images and for each class."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from vit_keras.evaluation.labels import mean_of_known, percent
from vit_keras.evaluation.predictors import Predictor, make_predictor
from vit_keras.tasks import Task

TOP = 5


def predict(model: keras.Model, batches: Iterable) -> tuple[np.ndarray, np.ndarray]:
    """Runs a model on batches of images and labels.

    Returns:
        The outputs, `(N, K)` float32, and the labels, `(N,)`.

    Raises:
        ValueError: If there are no images, or if outputs are not finite.

    Example:
        ```python
        size = {"image_size": (224, 224), "preprocessing": model.preprocessing}
        batches = data.eval_batches(dataset.split("test"), batch=32, **size)
        logits, labels = evaluation.predict(model, batches)
        ```
    """
    outputs, labels, _ = make_predictor(model).outputs(batches)
    return outputs, labels


def probabilities(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """Computes the probabilities of classes, whether or not the model ends in a softmax.

    Args:
        model: A classifier.
        images: `(N, H, W, C)`, prepared as the model's `preprocessing` says.

    Returns:
        `(N, K)` float32.
    """
    predictor = make_predictor(model)
    return predictor.as_probabilities(predictor.run(images).astype("float32"))


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


def top_k_accuracy(outputs: np.ndarray, labels: np.ndarray, k: int) -> float:
    """Returns the share of images whose label is among the `k` largest outputs.

    Example:
        >>> outputs = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
        >>> top_k_accuracy(outputs, labels=np.array([1, 2]), k=2)
        0.5
    """
    largest = np.argpartition(outputs, -k, axis=-1)[:, -k:]
    return float((largest == labels[:, None]).any(axis=-1).mean())


def report_classes(
    outputs: np.ndarray, labels: np.ndarray, class_names: Sequence[str], task: Task
) -> dict[str, Any]:
    """Judges a classifier.

    Args:
        outputs: Logits or probabilities, `(N, K)`.
        labels: `(N,)` integers.
        class_names: The K names.
        task: The task; it decides nothing here.

    Returns:
        "accuracy", "top_5_accuracy" (None if K <= 5), "balanced_accuracy" (the mean recall),
        "macro_f1", "images", "classes" (for each class its images, precision, recall, and F1), and
        "confusion_matrix", whose row i, column j counts the images of class i that were predicted
        as class j. A class without images has the recall and the F1 None; one that was never
        predicted has the precision None. What is None is left out of means.

    Raises:
        ValueError: If there are no images, if a label lies outside the K classes, or if there are
            not K names.
    """
    count = outputs.shape[-1]
    _check(labels, count)
    matrix = np.zeros((count, count), int)
    np.add.at(matrix, (labels, outputs.argmax(axis=-1)), 1)
    rows = [_row(str(name), matrix, i) for i, name in enumerate(class_names)]
    return {
        "accuracy": float(np.trace(matrix) / matrix.sum()),
        "top_5_accuracy": top_k_accuracy(outputs, labels, TOP) if count > TOP else None,
        "balanced_accuracy": mean_of_known(rows, "recall"),
        "macro_f1": mean_of_known(rows, "f1"),
        "images": int(matrix.sum()),
        "classes": rows,
        "confusion_matrix": matrix.tolist(),
    }


def _row(name, matrix, i):
    share = lambda count, whole: float(count / whole) if whole else None
    right, true, chosen = matrix[i, i], matrix[i].sum(), matrix[:, i].sum()
    return {
        "name": name,
        "images": int(true),
        "precision": share(right, chosen),
        "recall": share(right, true),
        "f1": share(2 * right, true + chosen) if true else None,
    }


def _check(labels, count):
    if labels.min() < 0 or labels.max() >= count:
        raise ValueError(
            f"Labels must lie in [0, {count}), the model's classes. "
            f"Received: labels from {labels.min()} to {labels.max()}"
        )


def class_table(metrics: dict[str, Any]) -> str:
    """Formats a `report` for a terminal: one line per class, and the accuracy last.

    Example:
        >>> logits = np.array([[2.0, 1.0], [3.0, 1.0], [0.0, 1.0]])
        >>> labels = np.array([0, 1, 1])
        >>> print(class_table(report_classes(logits, labels, ["cat", "dog"], Task())))
        class  images  precision   recall
        cat         1     50.00%  100.00%
        dog         2    100.00%   50.00%
        accuracy 66.67% of 3 images
    """
    width = max(5, *(len(row["name"]) for row in metrics["classes"]))
    lines = [f"{'class':<{width}}  images  precision   recall"]
    for row in metrics["classes"]:
        precision, recall = (percent(row[key], 7) for key in ("precision", "recall"))
        lines.append(f"{row['name']:<{width}}  {row['images']:>6}    {precision}  {recall}")
    lines.append(f"accuracy {100 * metrics['accuracy']:.2f}% of {metrics['images']} images")
    return "\n".join(lines)


def class_headline(metrics: dict[str, Any]) -> str:
    """The line that a run of classes ends with."""
    return f"accuracy {100 * metrics['accuracy']:.2f}% of {metrics['images']} held-out images"
