"""The operations of AutoAugment and RandAugment on a picture, by Pillow.

They equal the published code's (arXiv 1805.09501 and 1909.13719), which are Pillow's
`ImageOps`, `ImageEnhance` and affine maps to the nearest pixel. What a map leaves empty is gray.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from vit_keras import extras

GRAY = (128, 128, 128)
BRIGHT = 128  # solarize_add changes pixels below


def _pillow(module):
    return extras.require(f"PIL.{module}", extra="data", purpose="Changing the colors of pictures")


def _affine(picture, *numbers):
    image = _pillow("Image")
    method, nearest = image.Transform.AFFINE, image.Resampling.NEAREST
    return picture.transform(picture.size, method, numbers, nearest, fillcolor=GRAY)


def _sharpness(picture, factor):
    """Pillow's `ImageEnhance.Sharpness` to the same bits: its filter takes twice the time."""
    pixels = np.asarray(picture)
    smooth, wide = pixels.copy(), pixels.astype(np.uint16)
    rows = wide[:-2] + wide[1:-1] + wide[2:]
    sums = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] + 4 * wide[1:-1, 1:-1]
    smooth[1:-1, 1:-1] = (2 * sums + 13) // 26  # rounds a thirteenth
    image = _pillow("Image")
    return image.blend(image.fromarray(smooth), picture, factor)


def _rotate(picture, degrees):
    return picture.rotate(degrees, _pillow("Image").Resampling.NEAREST, fillcolor=GRAY)


def _image_ops(name):
    return lambda picture, *amount: getattr(_pillow("ImageOps"), name)(picture, *amount)


def _enhance(name):
    return lambda picture, factor: getattr(_pillow("ImageEnhance"), name)(picture).enhance(factor)


VALUES = np.arange(256)


def _by_table(table):
    """An operation that looks up each value of three channels in `table(amount)`, `(256,)`."""
    values = functools.cache(lambda amount: table(amount).tolist() * 3)
    return lambda picture, amount: picture.point(values(amount))


def _added(amount):
    return np.where(VALUES < BRIGHT, np.minimum(VALUES + amount, 255), VALUES)


def _kept(bits):
    """The upper bits of each value; of 0 bits, which Pillow refuses, nothing is left."""
    return VALUES & ~(2 ** (8 - bits) - 1)


def _cutout(picture, half, share_y, share_x):
    """Paints a square of 2 * half pixels gray, around a place in shares of the sides."""
    width, height = picture.size
    y, x = int(share_y * height), int(share_x * width)
    picture = picture.copy()
    picture.paste(GRAY, (max(x - half, 0), max(y - half, 0), x + half, y + half))
    return picture


# From a picture in RGB and the amounts of the change to another picture.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "identity": lambda picture: picture,
    "auto_contrast": _image_ops("autocontrast"),
    "equalize": _image_ops("equalize"),
    "invert": _image_ops("invert"),
    "posterize": _by_table(_kept),  # bits to keep
    "solarize": _image_ops("solarize"),  # inverts pixels from here on
    "solarize_add": _by_table(_added),  # what is added to dark pixels
    "color": _enhance("Color"),  # a factor, 1 for no change
    "contrast": _enhance("Contrast"),
    "brightness": _enhance("Brightness"),
    "sharpness": _sharpness,
    "shear_x": lambda picture, level: _affine(picture, 1, level, 0, 0, 1, 0),
    "shear_y": lambda picture, level: _affine(picture, 1, 0, 0, level, 1, 0),
    "translate_x": lambda picture, pixels: _affine(picture, 1, 0, pixels, 0, 1, 0),
    "translate_y": lambda picture, pixels: _affine(picture, 1, 0, 0, 0, 1, pixels),
    "rotate": _rotate,  # degrees
    "cutout": _cutout,  # half of a side in pixels, and a place in shares of the sides
}
