"""Measures whether a model is right as often as it is confident."""

from typing import Any

import numpy as np

BINS = 15


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
