"""Interpolation rules by name, each as a matrix along one axis, in NumPy."""

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


def interpolation_matrix(name):
    if name not in INTERPOLATIONS:
        raise ValueError(
            f"`interpolation` must be one of {', '.join(map(repr, INTERPOLATIONS))}. "
            f"Received: interpolation={name!r}"
        )
    return INTERPOLATIONS[name]
