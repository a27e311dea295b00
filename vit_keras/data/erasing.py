"""Random erasing (arXiv 1708.04896): replaces a part of an image by noise.

The part and the noise follow timm's code: 2 to 33 % of the area, sides in a ratio from 0.3 to 3.3,
and normal noise for each pixel of a standardized image.
"""

import math

import numpy as np

AREA = (0.02, 1 / 3)
RATIO = 0.3  # of the sides; its logarithm is uniform, up to the inverse
ATTEMPTS = 10  # at a part that fits into the image


def erase(image: np.ndarray, rng: np.random.Generator, share: float) -> np.ndarray:
    """Replaces a part of a `share` of the images by normal noise.

    Args:
        image: `(H, W, C)` float32, as the model takes it, which is changed in place.
        rng: Draws whether, where, and by what.
        share: The share of the images, 0 to 1.

    Returns:
        `image`.
    """
    if rng.random() < share:
        top, left, height, width = box(rng, image.shape[:2])
        part = image[top : top + height, left : left + width]
        part[...] = rng.standard_normal(part.shape, "float32")
    return image


def box(rng: np.random.Generator, size: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Draws the part to erase: the first of ten that fits, or nothing.

    Args:
        rng: Draws the part.
        size: The image's height and width.

    Returns:
        Top, left, height, and width.
    """
    for _ in range(ATTEMPTS):
        area = rng.uniform(*AREA) * size[0] * size[1]
        ratio = math.exp(rng.uniform(math.log(RATIO), -math.log(RATIO)))
        height, width = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if height < size[0] and width < size[1]:
            top, left = rng.integers(0, (size[0] - height + 1, size[1] - width + 1))
            return int(top), int(left), height, width
    return 0, 0, 0, 0
