"""Accuracy, in all and class by class."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from vit_keras.evaluation.predictors import Predictor, make_predictor

TOP = 5


def predict(model: keras.Model, batches: Iterable) -> tuple[np.ndarray, np.ndarray]:
    """The model's outputs `(N, K)` float32 and labels `(N,)` of batches of images and labels."""
    outputs, labels, _ = make_predictor(model).outputs(batches)
    return outputs, labels


def probabilities(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """Softmax of the model's logits, `(N, K)`, or its outputs where it ends in a softmax."""
    predictor = make_predictor(model)
    return predictor.as_probabilities(predictor.run(images).astype("float32"))


def check_classes(predictor: Predictor, class_names: Sequence[str], ignore_names: bool) -> None:
    """ValueError unless the data set's classes are the predictor's, in number and in name."""
    if len(class_names) != predictor.num_classes:
        raise ValueError(
            f"The model has {predictor.num_classes} classes. "
            f"Received: a data set with {len(class_names)}"
        )
    ours = predictor.class_names or class_names
    differ = [k for k, (a, b) in enumerate(zip(ours, class_names)) if str(a) != str(b)]
    if differ and not ignore_names:
        k = differ[0]
        raise ValueError(
            "The classes of the model and of the data set must be the same, in the same order. "
            f"Received: {len(differ)} that differ, such as class {k}, {ours[k]!r} in the model and "
            f"{class_names[k]!r} in the data set. Where they are only called differently, "
            "give --ignore_class_names"
        )


def top_k_accuracy(outputs: np.ndarray, labels: np.ndarray, k: int) -> float:
    """The share of images whose label is among the `k` largest outputs."""
    largest = np.argpartition(outputs, -k, axis=-1)[:, -k:]
    return float((largest == labels[:, None]).any(axis=-1).mean())


def report(outputs: np.ndarray, labels: np.ndarray, class_names: Sequence[str]) -> dict[str, Any]:
    """Accuracy, and for each class its images, precision, recall; with the confusion matrix.

    `outputs` `(N, K)` are logits or probabilities. Row i, column j of the matrix counts images of
    class i that were taken for class j. A class without images has recall None, one never predicted
    has precision None; `top_5_accuracy` is None where K <= 5. ValueError where a label lies outside
    the K classes.
    """
    count = outputs.shape[-1]
    _check(labels, count, class_names)
    matrix = np.zeros((count, count), int)
    np.add.at(matrix, (labels, outputs.argmax(axis=-1)), 1)
    share = lambda part, whole: float(part / whole) if whole else None
    return {
        "accuracy": float(np.trace(matrix) / matrix.sum()),
        "top_5_accuracy": top_k_accuracy(outputs, labels, TOP) if count > TOP else None,
        "images": int(matrix.sum()),
        "classes": [
            {
                "name": str(name),
                "images": int(matrix[i].sum()),
                "precision": share(matrix[i, i], matrix[:, i].sum()),
                "recall": share(matrix[i, i], matrix[i].sum()),
            }
            for i, name in enumerate(class_names)
        ],
        "confusion_matrix": matrix.tolist(),
    }


def _check(labels, count, class_names):
    if len(labels) == 0:
        raise ValueError("An evaluation needs at least one image. Received: none")
    if labels.min() < 0 or labels.max() >= count:
        raise ValueError(
            f"Labels must lie in [0, {count}), the model's classes. "
            f"Received: labels from {labels.min()} to {labels.max()}"
        )
    if len(class_names) != count:
        raise ValueError(
            f"The model has {count} classes. Received: {len(class_names)} names of classes"
        )


def report_table(found: dict[str, Any]) -> str:
    """A `report` as text for a terminal: one line a class, the accuracy last."""
    width = max(5, *(len(row["name"]) for row in found["classes"]))
    percent = lambda share: "      -" if share is None else f"{100 * share:6.2f}%"
    lines = [f"{'class':<{width}}  images  precision   recall"]
    for row in found["classes"]:
        numbers = f"{row['images']:>6}    {percent(row['precision'])}  {percent(row['recall'])}"
        lines.append(f"{row['name']:<{width}}  {numbers}")
    lines.append(f"accuracy {100 * found['accuracy']:.2f}% of {found['images']} images")
    return "\n".join(lines)
