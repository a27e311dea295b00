"""Interpolation rules by name, each as a matrix along one axis, in NumPy.

A rule takes the old and the new number of points, and returns weights `(new, old)`. To add a rule,
write such a function and add it to `INTERPOLATIONS`. Publishers resize position embeddings by
different rules:

- "bilinear" maps the ends to the ends: Google's ViT and big_vision.
- "bilinear_half_pixel": Meta's Perception Encoder, BEiT in transformers, and timm's FlexiViT.
- "bilinear_antialias": big_vision's FlexiViT, and NaFlex.
- "bicubic" (a = -0.75): most of transformers, and MAE.
- "bicubic_antialias" (a = -0.5): timm, OpenCLIP, and DINOv2 with registers.
- "bicubic_offset" (a = -0.75): Meta's DINO, and Meta's DINOv2 without registers. Point i is read at
  (i + 0.5) · old / (new + 0.1) - 0.5.
- "bicubic_aligned" (a = -0.75) maps the ends to the ends: torchvision.

Offsets between patches, as of BEiT's biases, have a rule more:

- "bilinear_geometric": timm's BEiT, after Microsoft's.

Patches are images, and FlexiViT resizes them by "bilinear_half_pixel".

Example:
    >>> vit_keras.resizing.INTERPOLATIONS["bilinear"](2, 3)
    array([[1. , 0. ],
           [0.5, 0.5],
           [0. , 1. ]])
"""

from collections.abc import Callable

import numpy as np


def bilinear_matrix(old: int, new: int) -> np.ndarray:
    """Linear interpolation that maps the end points to the end points.

    The published code does the same with `scipy.ndimage.zoom(order=1)` along each axis.
    """
    places = np.linspace(0, old - 1, new)  # of the new points among the old ones
    left = np.clip(np.floor(places).astype(int), 0, max(old - 2, 0))
    weights = np.zeros((new, old))
    rows = np.arange(new)
    weights[rows, left] = 1 - (places - left)
    if old > 1:
        weights[rows, left + 1] = places - left
    return weights


def bicubic_aligned_matrix(old: int, new: int) -> np.ndarray:
    """Cubic interpolation that maps end points to end points, as torchvision resizes positions."""
    weights = np.zeros((new, old))
    for row, center in enumerate(np.linspace(0, old - 1, new)):
        points = np.floor(center) + np.arange(-1, 3)
        values = cubic_kernel(-0.75)(points - center)
        np.add.at(weights[row], np.clip(points, 0, old - 1).astype(int), values)
    return weights


def geometric_matrix(old: int, new: int) -> np.ndarray:
    """Linear interpolation of offsets whose steps grow geometrically away from 0.

    The old offsets lie at 0, ±1, ±(1 + q), ±(1 + q + q²) and so on, where q is at least 1.01 and
    brings the last one to the last new one. New offsets lie at whole numbers, so that those near 0
    keep their places (timm's `resize_rel_pos_bias_table`).

    Raises:
        ValueError: If `old` or `new` is even, which no number of offsets is.
    """
    if old % 2 == 0 or new % 2 == 0:
        raise ValueError(
            'The rule "bilinear_geometric" is for offsets -n, ..., n, which are odd in number. '
            f"Received: {old} to become {new}; choose another `interpolation` for positions"
        )
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        ratio = (low + high) / 2
        too_far = (1 - ratio ** (old // 2)) / (1 - ratio) > new // 2
        low, high = (low, ratio) if too_far else (ratio, high)
    half = np.cumsum(ratio ** np.arange(old // 2))
    places = np.concatenate([-half[::-1], [0], half])
    targets = np.arange(new) - new // 2
    return np.stack([np.interp(targets, places, row) for row in np.eye(old)], axis=1)


def half_pixel_rule(
    kernel: Callable[[np.ndarray], np.ndarray],
    support: float,
    antialias: bool,
    offset: float = 0.0,
) -> Callable[[int, int], np.ndarray]:
    """Makes a rule for pixels whose centers lie at halves, as PyTorch and PIL resize images.

    Args:
        kernel: The weight at a distance.
        support: The distance beyond which the weight is zero.
        antialias: Whether to stretch the kernel when points get fewer. Points outside the image are
            then left out; without antialiasing they take the value of the border.
        offset: Added to the new number of points before the old number is divided by it.
    """

    def matrix(old: int, new: int) -> np.ndarray:
        stretch = max(old / new, 1.0) if antialias else 1.0
        centers = (np.arange(new) + 0.5) * old / (new + offset) - 0.5
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


def linear_kernel(x: np.ndarray) -> np.ndarray:
    """The weight of linear interpolation at a distance of `x` points."""
    return np.clip(1 - np.abs(x), 0, None)


def cubic_kernel(a: float) -> Callable[[np.ndarray], np.ndarray]:
    """Keys' cubic convolution kernel; PyTorch uses a = -0.75 and PIL a = -0.5."""

    def kernel(x):
        x = np.abs(x)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))

    return kernel


INTERPOLATIONS = {
    "bilinear": bilinear_matrix,
    "bilinear_half_pixel": half_pixel_rule(linear_kernel, 1, antialias=False),
    "bilinear_antialias": half_pixel_rule(linear_kernel, 1, antialias=True),
    "bicubic": half_pixel_rule(cubic_kernel(-0.75), 2, antialias=False),
    "bicubic_antialias": half_pixel_rule(cubic_kernel(-0.5), 2, antialias=True),
    "bicubic_offset": half_pixel_rule(cubic_kernel(-0.75), 2, antialias=False, offset=0.1),
    "bicubic_aligned": bicubic_aligned_matrix,
}
# Rules for the offsets between two places alone, which are odd in number.
OFFSET_RULES = {"bilinear_geometric": geometric_matrix}


def interpolation_rule(
    name: str, argument: str = "interpolation"
) -> Callable[[int, int], np.ndarray]:
    """Returns the rule called `name`.

    Args:
        name: A name in `INTERPOLATIONS` or `OFFSET_RULES`.
        argument: What the message calls the argument that holds `name`.

    Raises:
        ValueError: If there is no such rule.
    """
    rules = {**INTERPOLATIONS, **OFFSET_RULES}
    if name not in rules:
        raise ValueError(
            f"`{argument}` must be one of {', '.join(map(repr, rules))}. "
            f"Received: {argument}={name!r}"
        )
    return rules[name]


def grid_matrices(
    old_grid: tuple[int, int], new_grid: tuple[int, int], interpolation: str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the matrices for the rows and for the columns of a grid.

    A grid that stays the same keeps its points, by "bicubic_offset" too, as in Meta's code.

    Raises:
        ValueError: If there is no such rule.
    """
    rule = interpolation_rule(interpolation)
    if tuple(old_grid) == tuple(new_grid):
        return np.eye(new_grid[0]), np.eye(new_grid[1])
    return rule(old_grid[0], new_grid[0]), rule(old_grid[1], new_grid[1])
