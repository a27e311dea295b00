"""Learned positions on another grid of patches (Section 3.2), in NumPy."""

import math

import numpy as np

from vit_keras.resizing.interpolation import grid_matrices, interpolation_rule


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
    rule = interpolation_rule(interpolation)
    if len(embeddings) == new:
        return embeddings
    matrix = rule(len(embeddings), new)
    return (matrix @ embeddings.astype("float64")).astype(embeddings.dtype)


def resize_position_embeddings(
    embeddings: np.ndarray,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    interpolation: str = "bilinear",
) -> np.ndarray:
    """Resizes position embeddings to another grid of patches.

    Args:
        embeddings: `(1, T + h·w, D)`. The first T embeddings belong to the tokens before the
            patches and stay as they are.
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
    rows, columns = grid_matrices(old_grid, new_grid, interpolation)
    tokens = embeddings.shape[1] - math.prod(old_grid)
    if tokens < 0:
        raise ValueError(
            f"A grid of {old_grid[0]}x{old_grid[1]} needs {math.prod(old_grid)} position "
            f"embeddings. Received: {embeddings.shape[1]}"
        )
    if tuple(old_grid) == tuple(new_grid):
        return embeddings
    prefix, grid = embeddings[:, :tokens], embeddings[0, tokens:]
    grid = _resized(grid.reshape(*old_grid, -1), rows, columns)
    return np.concatenate([prefix, grid[None]], axis=1)


def resize_relative_table(
    table: np.ndarray,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    interpolation: str = "bilinear_half_pixel",
) -> np.ndarray:
    """Resizes biases for the offsets between two patches to another grid, as for BEiT.

    On a grid of h rows there are 2h - 1 offsets, from 1 - h to h - 1, which are resized as rows and
    columns of places are.

    Args:
        table: `((2h - 1)(2w - 1) + T, H)`: a row for each offset, columns in the inner order. The
            last T rows, which are 3 in BEiT, belong to the class token and stay as they are.
        old_grid: Rows h and columns w of patches.
        new_grid: Rows h' and columns w'.
        interpolation: The name of a rule in `INTERPOLATIONS`, or "bilinear_geometric".

    Returns:
        `((2h' - 1)(2w' - 1) + T, H)`.

    Raises:
        ValueError: If there are fewer rows than offsets, or no such rule.

    Example:
        >>> at_224 = np.zeros((27 * 27 + 3, 12), "float32")
        >>> resize_relative_table(at_224, (14, 14), (24, 24)).shape  # for 384 pixels
        (2212, 12)
    """
    old, new = ((2 * rows - 1, 2 * columns - 1) for rows, columns in (old_grid, new_grid))
    rows, columns = grid_matrices(old, new, interpolation)
    if len(table) < math.prod(old):
        raise ValueError(
            f"A grid of {old_grid[0]}x{old_grid[1]} has {math.prod(old)} offsets, and a row for "
            f"each. Received: {len(table)} rows"
        )
    if old == new:
        return table
    offsets, others = table[: math.prod(old)], table[math.prod(old) :]
    return np.concatenate([_resized(offsets.reshape(*old, -1), rows, columns), others])


def _resized(grid, rows, columns):
    """`(h, w, D)` -> `(h'·w', D)` by a matrix for the rows and one for the columns."""
    resized = np.einsum("ih,jw,hwd->ijd", rows, columns, grid.astype("float64"), optimize=True)
    return resized.reshape(-1, grid.shape[-1]).astype(grid.dtype)
