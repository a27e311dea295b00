"""Principal components with signs that are the same everywhere."""

import numpy as np


def principal_components(x: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Computes the first principal components of samples.

    The samples are centered. A direction has length 1, and its entry of the largest size is
    positive.

    Args:
        x: Samples `(N, D)`.
        count: Number of components. There are at most N - 1 and at most D.

    Returns:
        The directions `(K, D)` and their shares of the variance `(K,)`.
    """
    count = min(count, len(x) - 1)
    x = np.asarray(x, "float64")
    _, singular, directions = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    variance = singular**2
    shares = variance / max(variance.sum(), np.finfo("float64").tiny)
    largest = np.abs(directions).argmax(axis=1, keepdims=True)
    directions = directions * np.sign(np.take_along_axis(directions, largest, axis=1))
    return directions[:count], shares[:count]
