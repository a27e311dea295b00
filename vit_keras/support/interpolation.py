"""Resizes positions, biases and patch kernels with interpolation rules, in NumPy.

A rule takes the old and the new number of points along one axis, and returns weights `(new, old)`.
To add a rule, add such a function, or a `Rule`, to `INTERPOLATIONS`. Publishers resize position
embeddings with different rules:

- "bilinear" maps the ends to the ends: Google's ViT and big_vision.
- "bilinear_half_pixel": Meta's Perception Encoder, BEiT in transformers, and timm's FlexiViT.
- "bilinear_antialias": big_vision's FlexiViT, and NaFlex.
- "bicubic" (a = -0.75): most of transformers, and MAE.
- "bicubic_antialias" (a = -0.5): timm, OpenCLIP, and DINOv2 with registers.
- "bicubic_offset" (a = -0.75): Meta's DINO, and Meta's DINOv2 without registers. Point i reads from
  (i + 0.5) · old / (new + 0.1) - 0.5.
- "bicubic_aligned" (a = -0.75) maps the ends to the ends: torchvision.

Offsets between patches, as in BEiT's biases, have one more rule:

- "bilinear_geometric": timm's BEiT, after Microsoft's.

Patches are images, and FlexiViT resizes them with "bilinear_half_pixel".

Example:
    >>> vit_keras.support.interpolation.INTERPOLATIONS["bilinear"](2, 3)
    array([[1. , 0. ],
           [0.5, 0.5],
           [0. , 1. ]])
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from vit_keras.support.checks import check_choice

__all__ = [
    "INTERPOLATIONS",
    "change_channels",
    "resample_patch_kernel",
    "resize_axis_embeddings",
    "resize_position_embeddings",
    "resize_relative_table",
]


@dataclasses.dataclass(frozen=True)
class Rule:
    """Weights of interpolation along one axis, `(old, new) -> (new, old)`.

    Attributes:
        a: The parameter of Keys' cubic convolution, -0.75 in PyTorch and -0.5 in PIL; None for
            linear weights.
        antialias: Whether to stretch the kernel if there are fewer new points. Points outside the
            image are then left out; without antialiasing, they take the border's value.
        aligned: Whether the end points map to the end points; otherwise the points are the centers
            of pixels, as PyTorch and PIL resize images.
        offset: Added to the new number of points before the old number is divided by it.
    """

    a: float | None = None
    antialias: bool = False
    aligned: bool = False
    offset: float = 0.0

    def __call__(self, old: int, new, xp=np):
        """Returns the weights as an array of `xp`.

        Args:
            old: The old number of points.
            new: The new number of points, which may be known only in a graph.
            xp: NumPy, in float64, or `keras.ops`, in float32.
        """
        dtype = "float64" if xp is np else "float32"
        index = xp.arange(new, dtype=dtype)
        last = index[-1:]
        centers = (index + 0.5) * old / (last + 1 + self.offset) - 0.5
        if self.aligned:
            centers = index * (old - 1) / xp.maximum(last, 1)
        reach, stretch = (0, xp.maximum(old / (last + 1), 1)) if self.antialias else (2, 1)
        points = xp.arange(-reach, old + reach, dtype=dtype)
        weights = self.kernel(xp.abs(points - centers[:, None]) / stretch, xp)
        if self.antialias or old == 1:
            total = xp.sum(weights, axis=1, keepdims=True)
            return weights / total if self.antialias else total
        ends = [xp.sum(part, axis=1, keepdims=True) for part in (weights[:, :3], weights[:, -3:])]
        return xp.concatenate([ends[0], weights[:, 3:-3], ends[1]], axis=1)

    def kernel(self, x, xp=np):
        """Returns the weights at the nonnegative distances `x`, in points."""
        if self.a is None:
            return xp.maximum(1 - x, 0)
        near = ((self.a + 2) * x - (self.a + 3)) * x * x + 1
        far = self.a * (((x - 5) * x + 8) * x - 4)
        return xp.where(x <= 1, near, xp.where(x < 2, far, xp.zeros_like(x)))


def geometric_matrix(old: int, new: int) -> np.ndarray:
    """Linear interpolation of offsets whose steps grow geometrically away from 0.

    The old offsets lie at 0, ±1, ±(1 + q), ±(1 + q + q²) and so on. q is at least 1.01 and maps the
    last old offset to the last new one. New offsets lie at whole numbers, so the ones near 0 keep
    their places (timm's `resize_rel_pos_bias_table`).

    Raises:
        ValueError: If `old` or `new` is even, since a number of offsets is always odd.
    """
    if old % 2 == 0 or new % 2 == 0:
        raise ValueError(
            'The rule "bilinear_geometric" needs an odd number of offsets, from -n to n. '
            f"Received: {old} offsets to resize to {new}; choose another `interpolation`"
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


INTERPOLATIONS: dict[str, Callable] = {
    "bilinear": Rule(aligned=True),
    "bilinear_half_pixel": Rule(),
    "bilinear_antialias": Rule(antialias=True),
    "bicubic": Rule(-0.75),
    "bicubic_antialias": Rule(-0.5, antialias=True),
    "bicubic_offset": Rule(-0.75, offset=0.1),
    "bicubic_aligned": Rule(-0.75, aligned=True),
}
# One more rule is only for offsets between two places; numbers of offsets are odd.
RULES = {**INTERPOLATIONS, "bilinear_geometric": geometric_matrix}


def interpolation_rule(name: str) -> Callable[..., np.ndarray]:
    """Returns the rule called `name`, a key of `RULES`.

    Raises:
        ValueError: If there is no such rule.
    """
    check_choice(name, RULES, "interpolation")
    return RULES[name]


def change_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Changes the number of input channels of a kernel `(p_h, p_w, C, D)`, as timm does.

    One channel takes the sum of all channels, so gray pictures give the same results as their RGB
    copies. More channels repeat the old ones in turn, scaled by old / new to preserve the sum.

    Example:
        >>> change_channels(np.array([1.0, 2.0, 3.0]).reshape(1, 1, 3, 1), 1).ravel()
        array([6.])
    """
    old = kernel.shape[2]
    if channels == old:
        return kernel
    if channels == 1:
        return kernel.sum(axis=2, keepdims=True, dtype="float64").astype(kernel.dtype)
    repeated = np.take(kernel, np.arange(channels) % old, axis=2)
    return (repeated * (old / channels)).astype(kernel.dtype)


def resample_patch_kernel(
    kernel: np.ndarray, patch_size: tuple[int, int], interpolation: str = "bilinear_half_pixel"
) -> np.ndarray:
    """Resamples a kernel to another patch size with FlexiViT's pseudo-inverse.

    Let B be the matrix that resizes a patch. With the kernel `pinv(Bᵀ) w`, patches that B enlarges
    get the same embeddings as the old patches with `w` (arXiv 2212.08013, Eq. 4).

    Args:
        kernel: `(p_h, p_w, C, D)`.
        patch_size: The new height and width in pixels.
        interpolation: The rule for resizing patches, a key of `INTERPOLATIONS`.

    Returns:
        `(*patch_size, C, D)`.

    Raises:
        ValueError: If there is no such rule.

    Example:
        >>> resample_patch_kernel(np.ones((1, 1, 1, 1)), (2, 2)).ravel()
        array([0.25, 0.25, 0.25, 0.25])
    """
    rule = interpolation_rule(interpolation)
    if kernel.shape[:2] == tuple(patch_size):
        return kernel
    rows, columns = (
        np.linalg.pinv(rule(old, new).T) for old, new in zip(kernel.shape[:2], patch_size)
    )  # (new, old) each: B is their Kronecker product
    resampled = np.einsum("ah,bw,hwcd->abcd", rows, columns, kernel.astype("float64"))
    return resampled.astype(kernel.dtype)


def resize_axis_embeddings(
    embeddings: np.ndarray, new: int, interpolation: str = "bilinear"
) -> np.ndarray:
    """Resizes embeddings of the positions along one axis.

    Args:
        embeddings: `(n, D)`, one row for each position.
        new: The new number of positions.
        interpolation: A key of `INTERPOLATIONS`.

    Returns:
        `(new, D)`.

    Raises:
        ValueError: If there is no such rule.

    Example:
        >>> resize_axis_embeddings(np.array([[0.0], [1.0]]), 3).ravel()
        array([0. , 0.5, 1. ])
    """
    return _resized(embeddings, (len(embeddings), 1), (new, 1), interpolation)


def resize_position_embeddings(
    embeddings: np.ndarray,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    interpolation: str = "bilinear",
) -> np.ndarray:
    """Resizes position embeddings to another grid of patches.

    Args:
        embeddings: `(1, T + h·w, D)`. The first T embeddings belong to the tokens before the
            patches and are not changed.
        old_grid: Rows h and columns w.
        new_grid: Rows h' and columns w'.
        interpolation: A key of `INTERPOLATIONS`.

    Returns:
        `(1, T + h'·w', D)`.

    Raises:
        ValueError: If there are fewer embeddings than positions in `old_grid`, or if there is no
            such rule.

    Example:
        >>> at_224 = np.zeros((1, 1 + 14 * 14, 768), "float32")
        >>> resize_position_embeddings(at_224, (14, 14), (24, 24)).shape  # for 384 pixels
        (1, 577, 768)
    """
    tokens = embeddings.shape[1] - math.prod(old_grid)
    grid = _resized(embeddings[0, tokens:], old_grid, new_grid, interpolation)
    return np.concatenate([embeddings[:, :tokens], grid[None]], axis=1)


def resize_relative_table(
    table: np.ndarray,
    old_grid: tuple[int, int],
    new_grid: tuple[int, int],
    interpolation: str = "bilinear_half_pixel",
) -> np.ndarray:
    """Resizes biases for the offsets between two patches to another grid, as for BEiT.

    A grid of h rows has 2h - 1 offsets, from 1 - h to h - 1. They are resized like the rows and
    columns of position embeddings.

    Args:
        table: `((2h - 1)(2w - 1) + T, H)`: one row per offset, with the columns varying fastest.
            The last T rows, 3 in BEiT, belong to the class token and are not changed.
        old_grid: Rows h and columns w of patches.
        new_grid: Rows h' and columns w'.
        interpolation: A key of `INTERPOLATIONS`, or "bilinear_geometric".

    Returns:
        `((2h' - 1)(2w' - 1) + T, H)`.

    Raises:
        ValueError: If there are fewer rows than offsets, or if there is no such rule.

    Example:
        >>> at_224 = np.zeros((27 * 27 + 3, 12), "float32")
        >>> resize_relative_table(at_224, (14, 14), (24, 24)).shape  # for 384 pixels
        (2212, 12)
    """
    old, new = ((2 * rows - 1, 2 * columns - 1) for rows, columns in (old_grid, new_grid))
    count = math.prod(old)
    return np.concatenate([_resized(table[:count], old, new, interpolation), table[count:]])


def _resized(places, old_grid, new_grid, interpolation):
    """`(h·w, D)` -> `(h'·w', D)`, computed in float64."""
    maps = places.reshape(*old_grid, places.shape[-1])
    resized = resize_maps(maps, new_grid, interpolation, "float64")
    return resized.reshape(-1, places.shape[-1]).astype(places.dtype)


def resize_maps(maps: np.ndarray, size, interpolation: str, dtype: str = "float32") -> np.ndarray:
    """`(..., h, w, D)` -> `(..., *size, D)` with one matrix for the rows and one for the columns.

    The result has the type `dtype`, unless the size does not change.
    """
    rule, sides = interpolation_rule(interpolation), maps.shape[-3:-1]
    if sides == tuple(size):  # even with "bicubic_offset", as in Meta's code
        return maps
    rows, columns = (rule(old, new).astype(dtype) for old, new in zip(sides, size))
    return np.einsum("ih,jw,...hwd->...ijd", rows, columns, maps.astype(dtype), optimize=True)
