"""Fixed position tables as NumPy arrays: sin-cos embeddings and rotary angles."""

import math

import numpy as np

from vit_keras.layers.block_options import Rope

SINCOS_BASE = 10_000.0
ROPE = Rope()


def prefix_tokens(tokens: int, grid: tuple[int, int]) -> int:
    """Returns the number of tokens before the patches of `grid`; ValueError if it is negative."""
    before = tokens - math.prod(grid)
    if before < 0:
        raise ValueError(
            f"A `grid` of {grid[0]}x{grid[1]} has {math.prod(grid)} patches, so there must be as "
            f"many tokens or more. Received: {tokens} tokens"
        )
    return before


def sincos_2d(rows: int, columns: int, hidden_size: int, prefix: int = 0) -> np.ndarray:
    """Returns fixed embeddings of sin x, cos x, sin y and cos y at D/4 frequencies each.

    The frequencies fall from 1 to 1/10000, as in big_vision.

    Args:
        rows: The rows of patches, which give y.
        columns: The columns of patches, which give x.
        hidden_size: D, the width of a token.
        prefix: T, the number of tokens before the patches. Their embeddings are 0.

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
    return np.pad(table, [(prefix, 0), (0, 0)]).astype("float32")[None]


def rotary_angles_2d(
    rows: int, columns: int, head_size: int, prefix: int = 0, rope: Rope = ROPE
) -> np.ndarray:
    """Returns the angles of rotary positions: d/4 frequencies times the row, then the column.

    The frequencies are base^(-4j / d), as in axial RoPE for images (arXiv 2403.13298, Section 3.2).
    Texts have the base 10000; grids are shorter.

    Args:
        rows: The rows of patches.
        columns: The columns of patches.
        head_size: d, the width of an attention head.
        prefix: T, the number of tokens before the patches. Their angles are 0.
        rope: The base, and how rows and columns become places.

    Returns:
        An array `(T + rows · columns, 1, d/2)`, in radians.

    Raises:
        ValueError: If 4 does not divide `head_size`.
    """
    places = rotary_places(rows, columns, prefix, rope)
    frequencies = rotary_frequencies(head_size, rope)
    return np.concatenate([np.outer(axis, frequencies) for axis in places], axis=1)[:, None]


def rotary_frequencies(head_size: int, rope: Rope = ROPE) -> np.ndarray:
    """Returns the frequencies `(d/4,)` of one axis; ValueError if 4 does not divide `head_size`."""
    if head_size % 4:
        raise ValueError(
            "Rotary positions rotate pairs by rows and by columns, so 4 must divide the size of a "
            f"head, hidden_size / num_heads. Received: {head_size}"
        )
    periods = rope.base ** (np.arange(head_size // 4) / (head_size // 4))
    return 1 / (to_bfloat16(periods) if rope.rounded else periods)


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """Rounds positive numbers to the nearest bfloat16, the even one of two; returns float32."""
    bits = np.asarray(x, "float32").view(np.uint32)
    bits = bits + 0x7FFF + (bits >> 16 & 1)
    return (bits & 0xFFFF0000).astype(np.uint32).view(np.float32)


def rotary_places(rows: int, columns: int, prefix: int, rope: Rope) -> np.ndarray:
    """Returns the row and the column of each token, `(2, prefix + rows · columns)`; 0 before."""
    references = rope.reference or (None, None)
    axes = [_places(*axis, rope) for axis in zip((rows, columns), references)]
    y, x = np.meshgrid(*axes, indexing="ij")
    return np.pad(np.stack([y.ravel(), x.ravel()]), [(0, 0), (prefix, 0)])


def _places(count, reference, rope):
    index = np.arange(count)
    if rope.centered:
        return 2 * np.pi * (2 * (index + 0.5) / count - 1)
    return (index + rope.offset) * (1 if reference is None else reference / count)
