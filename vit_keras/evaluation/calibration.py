"""Measures whether a model is right as often as it is confident, and makes it so."""

from typing import Any

import numpy as np

from vit_keras import extras
from vit_keras.tasks import CLASSES, Task

BINS = 15
COLDEST, HOTTEST = 0.1, 10.0  # temperatures; without bounds, separable classes would have none


def measure_calibration(
    probabilities: np.ndarray, labels: np.ndarray, bins: int = BINS
) -> dict[str, Any]:
    """Computes the expected calibration error (Guo et al. 2017, Eq. 3).

    The confidence, which is the largest probability, falls into one of `bins` intervals
    (lower, upper] of equal width. ECE = Σ_m |B_m|/N · |accuracy(B_m) − confidence(B_m)|.

    Args:
        probabilities: `(N, K)`.
        labels: `(N,)` integers.
        bins: The number of intervals.

    Returns:
        The error as "ece", and "bins", a list with the bounds, the number of images, the accuracy,
        and the confidence of each bin. The last two are None for a bin without images.

    Example:
        >>> probabilities = np.array([[1.0, 0.0], [0.75, 0.25]])
        >>> measure_calibration(probabilities, np.array([0, 1]))["ece"]  # 75 % sure, and wrong
        0.375
    """
    confidence = probabilities.max(axis=-1).astype("float64")
    correct = probabilities.argmax(axis=-1) == labels
    upper = np.arange(1, bins + 1) / bins
    index = np.minimum(np.searchsorted(upper, confidence, side="left"), bins - 1)
    images = np.bincount(index, minlength=bins)
    mean = lambda values: np.bincount(index, values, bins) / np.maximum(images, 1)
    accuracies, confidences = mean(correct), mean(confidence)
    rows = [
        {
            "lower": m / bins,
            "upper": float(upper[m]),
            "images": int(images[m]),
            "accuracy": float(accuracies[m]) if images[m] else None,
            "confidence": float(confidences[m]) if images[m] else None,
        }
        for m in range(bins)
    ]
    error = np.abs(accuracies - confidences) @ images / len(labels)
    return {"ece": float(error), "bins": rows}


def fit_temperature(logits: np.ndarray, labels: np.ndarray, task: Task = CLASSES) -> float:
    """Finds the temperature T that makes the probabilities of `logits / T` fit the labels best.

    It minimizes the mean negative log-likelihood (Guo et al. 2017, Section 4.2), of a softmax for
    classes, or of a sigmoid for each known label.

    Args:
        logits: `(N, K)`.
        labels: `(N,)` integers, or `(N, K)` of 0 and 1 with NaN for unknown labels.
        task: What the logits are: classes or labels.

    Returns:
        T, between 0.1 and 10; above 1 if the model is too confident.

    Raises:
        ImportError: If SciPy is not installed, which comes with scikit-learn.

    Example:
        >>> logits = np.array([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]])
        >>> round(fit_temperature(logits, np.array([0, 0, 0, 1])), 2)  # e^(4/T) = 3
        3.64
    """
    optimize = extras.require("scipy.optimize", extra="data", purpose="Fitting a temperature")
    logits, losses = logits.astype("float64"), LIKELIHOODS[task.kind]
    bounds = (np.log(COLDEST), np.log(HOTTEST))
    loss = lambda log: losses(logits / np.exp(log), labels)
    best = optimize.minimize_scalar(loss, bounds=bounds, method="bounded")
    return float(np.exp(best.x))


def _of_classes(logits, labels):
    highest = logits.max(axis=-1)
    total = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=-1))
    return (total - logits[np.arange(len(labels)), labels]).mean()


def _of_labels(logits, labels):
    return np.nanmean(np.logaddexp(0, logits) - labels * logits)


LIKELIHOODS = {"classes": _of_classes, "labels": _of_labels}
