"""How strong the operations of RandAugment, AutoAugment, and TrivialAugment are.

A table maps an operation to a function from a level, a sign, and a picture's height and width to
the amounts that `OPERATIONS` takes.
"""

from collections.abc import Callable
from typing import Any

SIDE = 224  # pixels of the pictures for which the published code states lengths

Amounts = Callable[[float, int, tuple[int, int]], tuple[Any, ...]]


def _nothing(level, sign, size):
    return ()


def _signed(largest: float) -> Amounts:
    return lambda level, sign, size: (largest * level * sign,)


def _factor(level, sign, size):
    return (0.1 + 1.8 * level,)


def _of_side(axis: int, pixels: int) -> Amounts:
    return lambda level, sign, size: (pixels / SIDE * size[axis] * level * sign,)


# Level 1 is the published magnitude 10, and level 3 is 30.
RANDAUGMENT: dict[str, Amounts] = {
    **dict.fromkeys(("auto_contrast", "equalize", "invert"), _nothing),
    "rotate": _signed(30.0),
    "posterize": lambda level, sign, size: (min(int(4 * level), 8),),
    "solarize": lambda level, sign, size: (int(256 * level),),
    **dict.fromkeys(("color", "contrast", "brightness", "sharpness"), _factor),
    **dict.fromkeys(("shear_x", "shear_y"), _signed(0.3)),
    "translate_x": _of_side(1, 100),
    "translate_y": _of_side(0, 100),
    "cutout": lambda level, sign, size: (int(40 / SIDE * min(size) * level),),
    "solarize_add": lambda level, sign, size: (int(110 * level),),
}


def _strongest(*, shear, degrees, change, bits) -> dict[str, Amounts]:
    """A table whose level 0 changes nothing and whose level 1 reaches these amounts."""
    factors = lambda level, sign, size: (1 + change * level * sign,)
    return {
        "identity": _nothing,
        **dict.fromkeys(("shear_x", "shear_y"), _signed(shear)),
        "rotate": _signed(degrees),
        **dict.fromkeys(("brightness", "color", "contrast", "sharpness"), factors),
        "posterize": lambda level, sign, size: (round(8 - bits * level),),
        "solarize": lambda level, sign, size: (255 * (1 - level),),
        **dict.fromkeys(("auto_contrast", "equalize"), _nothing),
    }


TRIVIALAUGMENT = {
    **_strongest(shear=0.99, degrees=135.0, change=0.99, bits=6),
    **dict.fromkeys(
        ("translate_x", "translate_y"), lambda level, sign, size: (int(32 * level) * sign,)
    ),
}
AUTOAUGMENT = {**_strongest(shear=0.3, degrees=30.0, change=0.9, bits=4), "invert": _nothing}

# AutoAugment's policy for ImageNet: operations with their probabilities and levels, 0 to 9.
IMAGENET = (
    (("posterize", 0.4, 8), ("rotate", 0.6, 9)),
    (("solarize", 0.6, 5), ("auto_contrast", 0.6, 0)),
    (("equalize", 0.8, 0), ("equalize", 0.6, 0)),
    (("posterize", 0.6, 7), ("posterize", 0.6, 6)),
    (("equalize", 0.4, 0), ("solarize", 0.2, 4)),
    (("equalize", 0.4, 0), ("rotate", 0.8, 8)),
    (("solarize", 0.6, 3), ("equalize", 0.6, 0)),
    (("posterize", 0.8, 5), ("equalize", 1.0, 0)),
    (("rotate", 0.2, 3), ("solarize", 0.6, 8)),
    (("equalize", 0.6, 0), ("posterize", 0.4, 6)),
    (("rotate", 0.8, 8), ("color", 0.4, 0)),
    (("rotate", 0.4, 9), ("equalize", 0.6, 0)),
    (("equalize", 0.0, 0), ("equalize", 0.8, 0)),
    (("invert", 0.6, 0), ("equalize", 1.0, 0)),
    (("color", 0.6, 4), ("contrast", 1.0, 8)),
    (("rotate", 0.8, 8), ("color", 1.0, 2)),
    (("color", 0.8, 8), ("solarize", 0.8, 7)),
    (("sharpness", 0.4, 7), ("invert", 0.6, 0)),
    (("shear_x", 0.6, 5), ("equalize", 1.0, 0)),
    (("color", 0.4, 0), ("equalize", 0.6, 0)),
    (("equalize", 0.4, 0), ("solarize", 0.2, 4)),
    (("solarize", 0.6, 5), ("auto_contrast", 0.6, 0)),
    (("invert", 0.6, 0), ("equalize", 1.0, 0)),
    (("color", 0.6, 4), ("contrast", 1.0, 8)),
    (("equalize", 0.8, 0), ("equalize", 0.6, 0)),
)
STRONGEST = 9  # the level of `IMAGENET` at which the amounts are the strongest
