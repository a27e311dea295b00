"""The cost of training a model, by the convention of the paper's Table 6."""

import math

import keras

from vit_keras.inspection.costs import flops

JFT_IMAGES = 303_000_000
JFT_CLASSES = 18_291  # Section 4.1 says 18k
STEP = 3  # a training step in forward passes: one forward, and a backward pass that costs two


def training_exaflops(
    model: keras.Model | str,
    images: float = JFT_IMAGES,
    epochs: float = 1,
    image_size: int | tuple[int, int] | None = None,
    num_classes: int | None = JFT_CLASSES,
) -> float:
    """Counts the floating-point operations of training, in units of 10¹⁸ (Table 6).

    A multiply-add is 2 operations and a training step 3 forward passes. Products with weights,
    products of attention and normalization count; products with the zeros that pad a map do not,
    as in XLA's cost analysis. The paper does not state its convention. Of those that `flops`
    offers, this is the one under which all rows of Table 6 lie within 3 % (docs/inspection.md).

    Args:
        model: A functional model, or a variant's name, which is built at 224² pixels.
        images: Images in an epoch; by default those of JFT-300M.
        epochs: Number of epochs.
        image_size: As in `flops`.
        num_classes: As in `flops`; by default the 18k classes of JFT-300M.

    Returns:
        ExaFLOPs.

    Raises:
        ValueError: `images` or `epochs` is not positive, or `flops` cannot count the model.

    Example:
        >>> training_exaflops("L/16", epochs=7)  # the paper prints 783
        784.2...
    """
    _check_positive(images=images, epochs=epochs)
    forward = flops(model, image_size, padding=False, norms=True, num_classes=num_classes)
    return STEP * forward.flops * images * epochs / 1e18


def device_days(exaflops: float, device_tflops: float, utilization: float = 1.0) -> float:
    """Converts the cost of a training into days on one device.

    Args:
        exaflops: The cost in 10¹⁸ floating-point operations.
        device_tflops: The device's peak rate in 10¹² operations a second: 61.5 for a TPUv3 core.
        utilization: The share of the peak rate that the training reaches, in (0, 1].

    Returns:
        Days.

    Raises:
        ValueError: A number is not positive, or `utilization` is above 1.

    Example:
        >>> device_days(training_exaflops("L/16", epochs=7), device_tflops=61.5, utilization=0.4)
        368.9...
    """
    _check_positive(exaflops=exaflops, device_tflops=device_tflops, utilization=utilization)
    if utilization > 1:
        raise ValueError(f"`utilization` must be at most 1. Received: utilization={utilization!r}")
    return exaflops * 1e18 / (device_tflops * 1e12 * utilization) / 86_400


def _check_positive(**numbers):
    for name, number in numbers.items():
        if not (number > 0 and math.isfinite(number)):
            raise ValueError(f"`{name}` must be a positive number. Received: {name}={number!r}")
