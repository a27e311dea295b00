"""Learned position embeddings on another grid (Section 3.2), in NumPy."""

import numpy as np

from vit_keras.resizing.interpolation import interpolation_matrix


def resize_axis_embeddings(
    embeddings: np.ndarray, new: int, interpolation: str = "bilinear"
) -> np.ndarray:
    """`(n, D)`, one row for each place along an axis, as `(new, D)`.

    Raises ValueError for an unknown `interpolation`.
    """
    matrix = interpolation_matrix(interpolation)(len(embeddings), new)
    return (matrix @ embeddings.astype("float64")).astype(embeddings.dtype)


def resize_position_embeddings(
    embeddings: np.ndarray,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    interpolation: str = "bilinear",
) -> np.ndarray:
    """`(1, T + h·w, D)` on `old_grid` (h, w) -> `(1, T + h'·w', D)` on `new_grid` (h', w').

    The first T embeddings belong to class tokens and stay as they are. Raises ValueError where
    fewer embeddings are given than `old_grid` has places, or for an unknown `interpolation`.
    """
    matrix = interpolation_matrix(interpolation)
    tokens = embeddings.shape[1] - old_grid[0] * old_grid[1]
    if tokens < 0:
        raise ValueError(
            f"A grid of {old_grid[0]}x{old_grid[1]} needs {old_grid[0] * old_grid[1]} position "
            f"embeddings. Received: {embeddings.shape[1]}"
        )
    rows, columns = (matrix(old, new) for old, new in zip(old_grid, new_grid))
    prefix, grid = embeddings[:, :tokens], embeddings[0, tokens:]
    grid = grid.reshape(*old_grid, -1).astype("float64")
    grid = np.einsum("ah,bw,hwd->abd", rows, columns, grid, optimize=True)
    grid = grid.reshape(1, -1, grid.shape[-1]).astype(embeddings.dtype)
    return np.concatenate([prefix, grid], axis=1)
