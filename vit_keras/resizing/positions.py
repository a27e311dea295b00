"""Learned position embeddings on another grid (Section 3.2), in NumPy."""

import numpy as np

from vit_keras.resizing.interpolation import interpolation_rule


def resize_axis_embeddings(
    embeddings: np.ndarray, new: int, interpolation: str = "bilinear"
) -> np.ndarray:
    """Resizes embeddings of the places along one axis.

    Args:
        embeddings: `(n, D)`, one row for each place.
        new: The new number of places.
        interpolation: The name of a rule in `INTERPOLATIONS`.

    Returns:
        `(new, D)`.

    Raises:
        ValueError: If there is no such rule.

    Example:
        >>> resize_axis_embeddings(np.array([[0.0], [1.0]]), 3).ravel()
        array([0. , 0.5, 1. ])
    """
    matrix = interpolation_rule(interpolation)(len(embeddings), new)
    return (matrix @ embeddings.astype("float64")).astype(embeddings.dtype)


def resize_position_embeddings(
    embeddings: np.ndarray,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    interpolation: str = "bilinear",
) -> np.ndarray:
    """Resizes position embeddings to another grid of patches.

    Args:
        embeddings: `(1, T + h·w, D)`. The first T embeddings belong to class tokens and stay as
            they are.
        old_grid: Rows h and columns w.
        new_grid: Rows h' and columns w'.
        interpolation: The name of a rule in `INTERPOLATIONS`.

    Returns:
        `(1, T + h'·w', D)`.

    Raises:
        ValueError: If there are fewer embeddings than places in `old_grid`, or no such rule.

    Example:
        >>> at_224 = np.zeros((1, 1 + 14 * 14, 768), "float32")
        >>> resize_position_embeddings(at_224, (14, 14), (24, 24)).shape  # for 384 pixels
        (1, 577, 768)
    """
    rule = interpolation_rule(interpolation)
    tokens = embeddings.shape[1] - old_grid[0] * old_grid[1]
    if tokens < 0:
        raise ValueError(
            f"A grid of {old_grid[0]}x{old_grid[1]} needs {old_grid[0] * old_grid[1]} position "
            f"embeddings. Received: {embeddings.shape[1]}"
        )
    rows, columns = (rule(old, new) for old, new in zip(old_grid, new_grid))
    prefix, grid = embeddings[:, :tokens], embeddings[0, tokens:]
    grid = grid.reshape(*old_grid, -1).astype("float64")  # (h, w, D)
    grid = np.einsum("ih,jw,hwd->ijd", rows, columns, grid, optimize=True)  # (h', w', D)
    grid = grid.reshape(1, -1, grid.shape[-1]).astype(embeddings.dtype)
    return np.concatenate([prefix, grid], axis=1)
