"""Judges masks by the pixels of each class; pixels without a class, 255, are left out."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras.evaluation.labels import mean_of_known, percent
from vit_keras.tasks import VOID, Task


def pixel_matrix(true: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """Counts the pixels of each true class that are predicted as each class.

    Matrices of several pictures add up, so that no more than one mask need be held.

    Args:
        true: The classes of pixels, integers of any shape; 255 where there is none.
        predicted: The predicted classes, of the same shape.
        num_classes: K.

    Returns:
        `(K, K)` int64: row i, column j counts the pixels of class i that were predicted as class j.

    Raises:
        ValueError: A number is no class.

    Example:
        >>> pixel_matrix(np.array([[0, 1], [1, 255]]), np.array([[0, 1], [0, 0]]), num_classes=2)
        array([[1, 0],
               [1, 1]])
    """
    known = np.asarray(true) != VOID
    true, predicted = (np.asarray(x)[known].astype("int64") for x in (true, predicted))
    for numbers in (true, predicted):
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < num_classes:
            raise ValueError(
                f"The pixels of a mask must lie in [0, {num_classes}), or be {VOID} for no class. "
                f"Received: numbers from {numbers.min()} to {numbers.max()}"
            )
    counts = np.bincount(num_classes * true + predicted, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes)


def report_matrix(matrix: np.ndarray, class_names: Sequence[str], images: int) -> dict[str, Any]:
    """Judges masks by a `pixel_matrix`.

    Args:
        matrix: `(K, K)` integers, summed over all pictures.
        class_names: The K names.
        images: The number of pictures.

    Returns:
        "miou" (the mean over classes of the intersection over the union; scikit-learn's macro
        Jaccard score), "pixel_accuracy", "mean_class_accuracy" (the mean recall), "images",
        "masks" (for each class its pixels, IoU, precision and recall) and "confusion_matrix".
        A class that is neither true nor predicted anywhere has the IoU None, and is left out of
        the means.

    Raises:
        ValueError: There are no pixels with a class.

    Example:
        >>> matrix = pixel_matrix(np.array([0, 1, 1]), np.array([0, 1, 0]), num_classes=2)
        >>> report_matrix(matrix, ["sky", "ground"], images=1)["miou"]
        0.5
    """
    if not matrix.sum():
        raise ValueError("An evaluation of masks needs pixels that have a class. Received: none")
    share = lambda count, whole: float(count / whole) if whole else None
    rows = [
        {
            "name": str(name),
            "pixels": int(true),
            "iou": share(right, true + chosen - right),
            "precision": share(right, chosen),
            "recall": share(right, true),
        }
        for name, right, true, chosen in zip(
            class_names, np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0), strict=True
        )
    ]
    return {
        "miou": mean_of_known(rows, "iou"),
        "pixel_accuracy": float(np.trace(matrix) / matrix.sum()),
        "mean_class_accuracy": mean_of_known(rows, "recall"),
        "images": images,
        "masks": rows,
        "confusion_matrix": matrix.tolist(),
    }


def report_masks(
    outputs: np.ndarray, labels: np.ndarray, class_names: Sequence[str], task: Task
) -> dict[str, Any]:
    """Judges outputs `(N, H, W, K)` by masks `(N, H, W)` or `(N, H, W, 1)`; see `report_matrix`."""
    true, predicted = labels.reshape(outputs.shape[:3]), outputs.argmax(axis=-1)
    return report_matrix(
        pixel_matrix(true, predicted, outputs.shape[-1]), class_names, len(outputs)
    )


def mask_table(metrics: dict[str, Any]) -> str:
    """Formats a report of masks for a terminal: one line per class, and the means last.

    Example:
        >>> matrix = pixel_matrix(np.array([0, 1, 1]), np.array([0, 1, 0]), num_classes=2)
        >>> print(mask_table(report_matrix(matrix, ["sky", "ground"], images=1)))
        class   pixels       IoU  precision   recall
        sky          1    50.00%     50.00%  100.00%
        ground       2    50.00%    100.00%   50.00%
        mean IoU 50.00%, pixel accuracy 66.67% of 1 images
    """
    rows = metrics["masks"]
    width = max(5, *(len(row["name"]) for row in rows))
    most = max(7, *(len(str(row["pixels"])) for row in rows))
    lines = [f"{'class':<{width}}  {'pixels':>{most}}       IoU  precision   recall"]
    for row in rows:
        shares = [percent(row[key], 7) for key in ("iou", "precision", "recall")]
        counted = f"{row['name']:<{width}}  {row['pixels']:>{most}}"
        lines.append(f"{counted}   {shares[0]}    {shares[1]}  {shares[2]}")
    return "\n".join([*lines, mask_headline(metrics).replace(" held-out", "")])


def mask_headline(metrics: dict[str, Any]) -> str:
    """The line that a run of masks ends with."""
    return (
        f"mean IoU {100 * metrics['miou']:.2f}%, pixel accuracy "
        f"{100 * metrics['pixel_accuracy']:.2f}% of {metrics['images']} held-out images"
    )
