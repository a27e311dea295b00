"""Fixed position tables as NumPy arrays: sin-cos embeddings and rotary angles."""

import math

import numpy as np

SINCOS_BASE, ROTARY_BASE = 10_000.0, 100.0


def class_tokens(tokens: int, grid: tuple[int, int]) -> int:
    """Returns the number of tokens before the patches of `grid`; ValueError unless 0, 1 or 2."""
    before = tokens - math.prod(grid)
    if before not in (0, 1, 2):
        raise ValueError(
            f"A `grid` of {grid[0]}x{grid[1]} has {math.prod(grid)} patches, and at most a class "
            f"token and a distillation token come before them. Received: {tokens} tokens"
        )
    return before


def sincos_2d(rows: int, columns: int, hidden_size: int, class_tokens: int = 0) -> np.ndarray:
    """Returns fixed embeddings of sin x, cos x, sin y and cos y at D/4 frequencies each.

    The frequencies fall from 1 to 1/10000, as in big_vision.

    Args:
        rows: The rows of patches, which give y.
        columns: The columns of patches, which give x.
        hidden_size: D, the width of a token.
        class_tokens: T, the number of tokens before the patches. Their embeddings are 0.

    Returns:
        A float32 array `(1, T + rows · columns, D)`.

    Raises:
        ValueError: If 4 does not divide `hidden_size`.
    """
    if hidden_size % 4:
        raise ValueError(
            "4 must divide `hidden_size` for sin-cos positions. "
            f"Received: hidden_size={hidden_size}"
        )
    y, x = np.mgrid[:rows, :columns]
    quarter = hidden_size // 4
    frequencies = SINCOS_BASE ** -(np.arange(quarter) / max(quarter - 1, 1))
    y, x = (np.outer(axis.ravel(), frequencies) for axis in (y, x))
    table = np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)
    return np.pad(table, [(class_tokens, 0), (0, 0)]).astype("float32")[None]


def rotary_angles_2d(rows: int, columns: int, head_size: int, class_tokens: int = 0) -> np.ndarray:
    """Returns the angles of rotary positions: d/4 frequencies times the row, then the column.

    The frequencies are 100^(-4i / d), as in axial RoPE for images (arXiv 2403.13298, Section 3.2).
    Texts have the base 10000; grids are shorter.

    Args:
        rows: The rows of patches.
        columns: The columns of patches.
        head_size: d, the width of an attention head.
        class_tokens: T, the number of tokens before the patches. Their angles are 0.

    Returns:
        An array `(T + rows · columns, 1, d/2)`, in radians.

    Raises:
        ValueError: If 4 does not divide `head_size`.
    """
    if head_size % 4:
        raise ValueError(
            "Rotary positions rotate pairs by rows and by columns, so 4 must divide the size of a "
            f"head, hidden_size / num_heads. Received: {head_size}"
        )
    y, x = np.mgrid[:rows, :columns]
    frequencies = ROTARY_BASE ** -(np.arange(head_size // 4) / (head_size // 4))
    angles = [np.outer(axis.ravel(), frequencies) for axis in (y, x)]
    table = np.pad(np.concatenate(angles, axis=1), [(class_tokens, 0), (0, 0)])
    return table[:, None]
