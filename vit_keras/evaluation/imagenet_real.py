"""ImageNet-ReaL, where every label that fits an image counts (arXiv 2006.07159)."""

import json
import os
import re
from collections.abc import Sequence

import numpy as np

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
        paths: The images' files. If these are ImageNet's, their names choose the lists; otherwise
            the images must be in the order of the file.

    Returns:
        One set of labels per image.

    Raises:
        FileNotFoundError: If there is no file at `path`.
        ValueError: If the file has another number of lists or labels outside the classes, or if
            the images come from TensorFlow Datasets, which has another order.

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
    """Computes the ReaL accuracy; images without labels are left out, as published.

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
