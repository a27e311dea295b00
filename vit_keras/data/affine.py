"""Rotates, scales, and shifts images by one resampling."""

import math

import numpy as np

from vit_keras import extras


def is_active(config) -> bool:
    """Whether an `AugmentConfig` rotates, scales, or shifts."""
    return bool(config.rotation_degrees or config.scale or config.shift)


def draw(rng: np.random.Generator, size: tuple[int, int], config) -> np.ndarray:
    """Draws the affine map of one image.

    Args:
        rng: Draws the map.
        size: Height and width in pixels.
        config: An `AugmentConfig`.

    Returns:
        The map from output to input coordinates, `(2, 3)` float64: the pixel (y, x) of the result
        is the image's at `map @ (y, x, 1)`.
    """
    log_scale = math.log1p(config.scale)
    limits = (math.radians(config.rotation_degrees), log_scale, log_scale, *[config.shift] * 2)
    angle, *amounts = rng.uniform(-1, 1, 5) * limits
    scales, shifts = np.exp(amounts[:2]), amounts[2:] * np.array(size)
    cos, sin = math.cos(angle), math.sin(angle)
    turn = np.array([[cos, sin], [-sin, cos]]) * scales
    center = (np.array(size) - 1) / 2
    return np.column_stack([turn, center + shifts - turn @ center])


def warp(pixels: np.ndarray, map: np.ndarray) -> np.ndarray:
    """Applies a map of `draw` to an image `(H, W, C)` float32; edges are repeated."""
    planes = np.ascontiguousarray(np.moveaxis(pixels, -1, 0))
    return np.stack([_transform(plane, map, order=1) for plane in planes], axis=-1)


def warp_mask(mask: np.ndarray, map: np.ndarray) -> np.ndarray:
    """Applies a map of `draw` to a mask `(H, W)`: each pixel takes the nearest one's class."""
    return _transform(mask, map, order=0)


def _transform(plane, map, order):
    ndimage = extras.require("scipy.ndimage", extra="data", purpose="Turning and scaling images")
    return ndimage.affine_transform(plane, map[:, :2], map[:, 2], order=order, mode="nearest")
