"""Accuracy, in all and class by class."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from vit_keras.data import normalise, read_image, resize
from vit_keras.models import class_names_of, ends_in_softmax, preprocessing_of


def predict(model: keras.Model, batches: Iterable) -> tuple[np.ndarray, np.ndarray]:
    """Logits `(N, K)` float32 and labels `(N,)` of batches of images and labels."""
    logits, labels = [], []
    for images, classes in batches:
        logits.append(model.predict_on_batch(np.asarray(images)))
        labels.append(np.asarray(classes))
    return np.concatenate(logits).astype("float32"), np.concatenate(labels)


def probabilities(model: keras.Model, images: np.ndarray) -> np.ndarray:
    """Softmax of the model's logits, `(N, K)`, or its outputs where it ends in a softmax."""
    outputs = model.predict_on_batch(images).astype("float32")
    if ends_in_softmax(model):
        return outputs
    exponents = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


def classify(
    model: keras.Model, paths: Sequence[str], top: int = 3
) -> list[list[tuple[str, float]]]:
    """For each picture its `top` most likely classes and their probabilities.

    Raises FileNotFoundError or ValueError with the path of a picture that cannot be read.
    """
    height, width, channels = model.input_shape[1:]
    preprocessing = preprocessing_of(model)
    pictures = [read_image(path, channels) for path in paths]
    images = [resize(picture, (height, width), preprocessing) for picture in pictures]
    found = probabilities(model, np.asarray(normalise(np.stack(images), preprocessing)))
    names = class_names_of(model)
    return [[(names[k], float(row[k])) for k in row.argsort()[::-1][:top]] for row in found]


def report(logits: np.ndarray, labels: np.ndarray, class_names: Sequence[str]) -> dict[str, Any]:
    """Accuracy, and for each class its images, precision, recall; with the confusion matrix.

    Row i, column j of the matrix counts images of class i that were taken for class j. A class
    without images has recall None, one never predicted has precision None. ValueError where a
    label lies outside the K classes.
    """
    count = logits.shape[-1]
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
    matrix = np.zeros((count, count), int)
    np.add.at(matrix, (labels, logits.argmax(axis=-1)), 1)
    share = lambda part, whole: float(part / whole) if whole else None
    return {
        "accuracy": float(np.trace(matrix) / matrix.sum()),
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


def table(found: dict[str, Any]) -> str:
    """A `report` as text for a terminal: one line a class, the accuracy last."""
    width = max(5, *(len(row["name"]) for row in found["classes"]))
    percent = lambda share: "      -" if share is None else f"{100 * share:6.2f}%"
    lines = [f"{'class':<{width}}  images  precision   recall"]
    for row in found["classes"]:
        numbers = f"{row['images']:>6}    {percent(row['precision'])}  {percent(row['recall'])}"
        lines.append(f"{row['name']:<{width}}  {numbers}")
    lines.append(f"accuracy {100 * found['accuracy']:.2f}% of {found['images']} images")
    return "\n".join(lines)
