"""Fixed position tables as NumPy arrays: sin-cos embeddings and rotary angles."""

import numpy as np

SINCOS_BASE, ROTARY_BASE = 10_000.0, 100.0


def sincos_2d(rows: int, columns: int, hidden_size: int, class_tokens: int = 0) -> np.ndarray:
    """Fixed embeddings `(1, T + rows · columns, D)`: sin x, cos x, sin y, cos y of D/4 frequencies.

    The frequencies fall from 1 to 1/10000, as in big_vision; T class tokens get zeros. Raises
    ValueError unless 4 divides `hidden_size`.
    """
    if hidden_size % 4:
        raise ValueError(
            f"Sin-cos positions need a `hidden_size` of 4 parts. Received: {hidden_size}"
        )
    y, x = np.mgrid[:rows, :columns]
    parts = hidden_size // 4
    frequencies = SINCOS_BASE ** -(np.arange(parts) / max(parts - 1, 1))
    y, x = (np.outer(axis.ravel(), frequencies) for axis in (y, x))
    table = np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)
    return np.pad(table, [(class_tokens, 0), (0, 0)]).astype("float32")[None]


def rotary_angles_2d(rows: int, columns: int, head_size: int, class_tokens: int = 0) -> np.ndarray:
    """Angles `(T + rows · columns, 1, d/2)`: d/4 frequencies times the row, then the column.

    The frequencies are 100^(-4i / d), as in axial RoPE for images (arXiv 2403.13298, Section 3.2):
    grids are shorter than texts, for which the base is 10000. T class tokens get zeros. Raises
    ValueError unless 4 divides `head_size`.
    """
    if head_size % 4:
        raise ValueError(
            "Rotary positions turn pairs by rows and by columns, so 4 must divide the size of a "
            f"head, hidden_size / num_heads. Received: {head_size}"
        )
    y, x = np.mgrid[:rows, :columns]
    frequencies = ROTARY_BASE ** -(np.arange(head_size // 4) / (head_size // 4))
    angles = [np.outer(axis.ravel(), frequencies) for axis in (y, x)]
    table = np.pad(np.concatenate(angles, axis=1), [(class_tokens, 0), (0, 0)])
    return table[:, None]
