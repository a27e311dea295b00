"""Principal components with signs that are the same everywhere."""

import numpy as np


def principal_components(x: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `count` directions `(K, D)` of samples `(N, D)`, and their shares of the variance.

    Samples are centred. A direction has length 1, and its entry of the largest size is positive.
    K is less than `count` where N - 1 or D is: there is no more variance.
    """
    count = min(count, len(x) - 1)
    x = np.asarray(x, "float64")
    _, singular, directions = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    variance = singular**2
    shares = variance / max(variance.sum(), np.finfo("float64").tiny)
    largest = np.abs(directions).argmax(axis=1, keepdims=True)
    directions = directions * np.sign(np.take_along_axis(directions, largest, axis=1))
    return directions[:count], shares[:count]
