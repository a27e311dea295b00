"""Random changes of the colors and the sharpness of a picture, by Pillow.

Pictures have 8 bits and the mode RGB or L.
"""

import numpy as np

from vit_keras import extras
from vit_keras.data.operations import OPERATIONS

JITTER = {"brightness": 0.4, "contrast": 0.4, "color": 0.2, "hue": 0.1}  # in DINO
JITTERED = 0.8  # share of the pictures
LEAST_SIGMA = 0.1  # pixels
THRESHOLD = 128  # solarize inverts pixels from here on


def jitter(picture, rng: np.random.Generator, strength: float):
    """Changes brightness, contrast, saturation, and hue of 80 % of the pictures, in a random order.

    Each of the first three is multiplied by a factor from 1 - s, at least 0, to 1 + s, and the hue
    is turned by up to s circles, where s is `strength` times the number in `JITTER`. A picture of
    one channel has no saturation and no hue.
    """
    if not strength or rng.random() >= JITTERED:
        return picture
    names = list(JITTER) if picture.mode == "RGB" else ["brightness", "contrast"]
    for name in rng.permutation(names):
        most = strength * JITTER[name]
        if name == "hue":
            picture = turn(picture, rng.uniform(-most, most))
        else:
            picture = OPERATIONS[name](picture, rng.uniform(max(0.0, 1 - most), 1 + most))
    return picture


def turn(picture, circles: float):
    """Turns the hue of a picture in RGB by a part of a circle, as torchvision does."""
    hue, *others = picture.convert("HSV").split()
    hue = hue.point([(level + int(255 * circles)) % 256 for level in range(256)])
    image = extras.require("PIL.Image", extra="data", purpose="Changing the colors of pictures")
    return image.merge("HSV", (hue, *others)).convert("RGB")


def grayscale(picture, rng: np.random.Generator, share: float):
    """Takes the colors of a `share` of the pictures; all channels become the luma."""
    if not share or rng.random() >= share:
        return picture
    return picture.convert("L").convert(picture.mode)


def blur(picture, rng: np.random.Generator, share: float, largest: float):
    """Blurs a `share` of the pictures by a Gaussian of 0.1 to `largest` pixels; edges are repeated.

    Pillow approximates it by three means over boxes.
    """
    if not largest or rng.random() >= share:
        return picture
    filters = extras.require("PIL.ImageFilter", extra="data", purpose="Blurring pictures")
    return picture.filter(filters.GaussianBlur(rng.uniform(min(LEAST_SIGMA, largest), largest)))


def solarize(picture, rng: np.random.Generator, share: float):
    """Inverts the pixels of a `share` of the pictures that are 128 or brighter."""
    if not share or rng.random() >= share:
        return picture
    return OPERATIONS["solarize"](picture, THRESHOLD)
