"""Fixed position embeddings, and learned ones on another grid (Section 3.2), in NumPy."""

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


def half_pixel_matrix(kernel, support: float, antialias: bool):
    """The maker of `(new, old)` weights for pixels with centres at half: PyTorch's and PIL's.

    `kernel` is the weight at a distance, zero beyond `support`; with `antialias` it is stretched
    when points get fewer. What lies outside is the border, or is left out with `antialias`.
    """

    def matrix(old: int, new: int) -> np.ndarray:
        stretch = max(old / new, 1.0) if antialias else 1.0
        centers = (np.arange(new) + 0.5) * old / new - 0.5
        reach = int(np.ceil(support * stretch)) + 1
        weights = np.zeros((new, old))
        for row, center in enumerate(centers):
            points = np.arange(np.floor(center) - reach, np.floor(center) + reach + 1)
            values = kernel((points - center) / stretch)
            inside = (points >= 0) & (points < old)
            if antialias:
                points, values = points[inside], values[inside]
                values = values / values.sum()
            np.add.at(weights[row], np.clip(points, 0, old - 1).astype(int), values)
        return weights

    return matrix


def bicubic_aligned_matrix(old: int, new: int) -> np.ndarray:
    """Cubic weights `(new, old)` with ends on ends, as torchvision interpolates positions."""
    weights = np.zeros((new, old))
    for row, center in enumerate(np.linspace(0, old - 1, new)):
        points = np.floor(center) + np.arange(-1, 3)
        values = _cubic(-0.75)(points - center)
        np.add.at(weights[row], np.clip(points, 0, old - 1).astype(int), values)
    return weights


def _linear(x):
    return np.clip(1 - np.abs(x), 0, None)


def _cubic(a: float):
    """Keys' kernel: -0.75 is PyTorch's, -0.5 PIL's."""

    def kernel(x):
        x = np.abs(x)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))

    return kernel


INTERPOLATIONS = {
    "bilinear": bilinear_matrix,
    "bilinear_half_pixel": half_pixel_matrix(_linear, 1, antialias=False),
    "bilinear_antialias": half_pixel_matrix(_linear, 1, antialias=True),
    "bicubic": half_pixel_matrix(_cubic(-0.75), 2, antialias=False),
    "bicubic_antialias": half_pixel_matrix(_cubic(-0.5), 2, antialias=True),
    "bicubic_aligned": bicubic_aligned_matrix,
}


def resize_axis_embeddings(
    embeddings: np.ndarray, new: int, interpolation: str = "bilinear"
) -> np.ndarray:
    """`(n, D)`, one row for each place along an axis, as `(new, D)`.

    Raises ValueError for an unknown `interpolation`.
    """
    matrix = _interpolation(interpolation)(len(embeddings), new)
    return (matrix @ embeddings.astype("float64")).astype(embeddings.dtype)


def _interpolation(name):
    if name not in INTERPOLATIONS:
        raise ValueError(
            f"`interpolation` must be one of {', '.join(map(repr, INTERPOLATIONS))}. "
            f"Received: interpolation={name!r}"
        )
    return INTERPOLATIONS[name]


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
    matrix = _interpolation(interpolation)
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
