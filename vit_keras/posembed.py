"""Position embeddings on another grid (Section 3.2: 2-D interpolation), in NumPy."""

import numpy as np


def bilinear_matrix(old: int, new: int) -> np.ndarray:
    """Weights `(new, old)` of linear interpolation from `old` points to `new`, ends on ends.

    This is the published code's `scipy.ndimage.zoom(order=1)` along one axis.
    """
    at = np.linspace(0, old - 1, new)  # positions of the new points among the old
    left = np.clip(np.floor(at).astype(int), 0, max(old - 2, 0))
    weights = np.zeros((new, old))
    rows = np.arange(new)
    weights[rows, left] = 1 - (at - left)
    if old > 1:
        weights[rows, left + 1] = at - left
    return weights


INTERPOLATIONS = {"bilinear": bilinear_matrix}


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
    if interpolation not in INTERPOLATIONS:
        raise ValueError(
            f"`interpolation` must be one of {', '.join(map(repr, INTERPOLATIONS))}. "
            f"Received: interpolation={interpolation!r}"
        )
    tokens = embeddings.shape[1] - old_grid[0] * old_grid[1]
    if tokens < 0:
        raise ValueError(
            f"A grid of {old_grid[0]}x{old_grid[1]} needs {old_grid[0] * old_grid[1]} position "
            f"embeddings. Received: {embeddings.shape[1]}"
        )
    matrix = INTERPOLATIONS[interpolation]
    rows, columns = (matrix(old, new) for old, new in zip(old_grid, new_grid))
    prefix, grid = embeddings[:, :tokens], embeddings[0, tokens:]
    grid = grid.reshape(*old_grid, -1).astype("float64")
    grid = np.einsum("ah,bw,hwd->abd", rows, columns, grid, optimize=True)
    grid = grid.reshape(1, -1, grid.shape[-1]).astype(embeddings.dtype)
    return np.concatenate([prefix, grid], axis=1)
