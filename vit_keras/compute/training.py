"""The cost of a whole training, by the convention of the paper's Table 6."""

import math

import keras

from vit_keras.compute.costs import flops

JFT_IMAGES = 303_000_000
JFT_CLASSES = 18_291  # Section 4.1 says 18k
STEP = 3  # forward passes that a training step costs: its own, and twice that backward


def training_exaflops(
    model: keras.Model | str,
    images: float = JFT_IMAGES,
    epochs: float = 1,
    image_size: int | tuple[int, int] | None = None,
    num_classes: int | None = JFT_CLASSES,
) -> float:
    """10¹⁸ floating-point operations of training on `images` for `epochs` (Table 6).

    A multiply-add is 2 operations and a training step 3 forward passes. Products of weights and of
    attention count, and normalisation, but none with the zeros around a map, as in XLA's cost
    analysis. The paper does not say so; of the conventions that `flops` has, this is the one under
    which all rows of its table lie within 3 % (docs/inspection.md). `model` is a functional model,
    or a variant's name, which is built at 224² pixels with `num_classes`; other arguments as
    `flops`. Raises ValueError for numbers of images or epochs that are not positive.
    """
    _check_positive(images=images, epochs=epochs)
    forward = flops(model, image_size, padding=False, norms=True, num_classes=num_classes)
    return STEP * forward.flops * images * epochs / 1e18


def device_days(exaflops: float, device_tflops: float, utilisation: float = 1.0) -> float:
    """Days that one device takes for `exaflops`, of which it does `utilisation` × its rate.

    `device_tflops` is the device's rate in 10¹² operations a second, 61.5 for a TPUv3 core.
    Raises ValueError for a rate or cost that is not positive or a utilisation not in (0, 1].
    """
    _check_positive(exaflops=exaflops, device_tflops=device_tflops, utilisation=utilisation)
    if utilisation > 1:
        raise ValueError(f"`utilisation` is a share, at most 1. Received: {utilisation!r}")
    return exaflops * 1e18 / (device_tflops * 1e12 * utilisation) / 86_400


def _check_positive(**numbers):
    for name, number in numbers.items():
        if not (number > 0 and math.isfinite(number)):
            raise ValueError(f"`{name}` must be a positive number. Received: {name}={number!r}")
