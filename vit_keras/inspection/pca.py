"""Principal components with signs that are the same everywhere."""

import numpy as np

from vit_keras.support import extras


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
    purpose = {"extra": "data", "purpose": "A principal component"}
    count = min(count, len(x) - 1, x.shape[1])
    pca = extras.require("sklearn.decomposition", **purpose).PCA(count, svd_solver="full")
    with np.errstate(invalid="ignore"):  # shares of no variance, 0 / 0
        pca.fit(np.asarray(x, "float64"))
    return pca.components_, np.nan_to_num(pca.explained_variance_ratio_)
