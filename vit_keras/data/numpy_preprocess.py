"""Resizes and normalizes pictures with NumPy, as `tf_preprocess` does in TensorFlow's graph."""

import numpy as np

from vit_keras.models import Preprocessing

UNIT = 2**22  # of the weights by which Pillow sums levels of 8 bits


def resize(images, size: tuple[int, int], preprocessing: Preprocessing) -> np.ndarray:
    """Resizes an image or a batch of images as a model's preprocessing says.

    Without a `crop_fraction`, the whole image is squeezed to `size`. With one, the central part is
    cut out: that fraction of the shorter side, in the aspect ratio of `size`. Pixels differ from
    `tf_preprocess.resize` by less than 0.2 of 255, since TensorFlow rounds the weights of bicubic
    interpolation, or by one level here and there if levels are rounded. Averages of rounded levels
    have the bits of Pillow's.

    Args:
        images: Pixels in [0, 255], `(..., H, W, C)`.
        size: The new height and width in pixels.
        preprocessing: The interpolation, antialiasing, `crop_fraction`, and `rounding`.

    Returns:
        Float32 pixels in [0, 255], `(..., height, width, C)`.

    Raises:
        ValueError: If the interpolation is neither bilinear nor bicubic.
    """
    images = np.asarray(images)
    if preprocessing.crop_fraction is None:
        return _resize(images, size, preprocessing)
    scaled, (top, left) = _crop(images.shape[-3:-1], size, preprocessing)
    images = _resize(images, tuple(scaled), preprocessing)
    return images[..., top : top + size[0], left : left + size[1], :]


def seen_part(
    sides: tuple[int, int], size: tuple[int, int], preprocessing: Preprocessing
) -> tuple[float, float, float, float]:
    """Returns the part of a picture that `resize` leaves: (top, left, height, width).

    Args:
        sides: The picture's height and width in pixels.
        size: The new height and width in pixels, as for `resize`.
        preprocessing: The `crop_fraction` and the `rounding`.

    Returns:
        Fractions of the picture's sides; (0, 0, 1, 1) without a `crop_fraction`.

    Example:
        >>> seen_part((224, 448), (224, 224), Preprocessing(crop_fraction=1.0))  # the middle
        (0.0, 0.25, 1.0, 0.5)
    """
    if preprocessing.crop_fraction is None:
        return 0.0, 0.0, 1.0, 1.0
    scaled, corner = _crop(sides, size, preprocessing)
    top, left, height, width = np.concatenate([corner / scaled, size / scaled])
    return float(top), float(left), float(height), float(width)


def normalize(images, preprocessing: Preprocessing):
    """Maps pixels from [0, 255] to the model's input, by default to [-1, 1].

    Args:
        images: Float pixels, `(..., C)`, as an array or tensor.
        preprocessing: The mean and standard deviation.

    Returns:
        An array or tensor like `images`.
    """
    return preprocessing.normalize(images)


def to_uint8(images) -> np.ndarray:
    """Rounds pixels to whole numbers from 0 to 255.

    Args:
        images: Pixels in [0, 255] of any shape, which a resize or a mean may have put outside.

    Returns:
        The pixels as uint8, in the same shape.

    Example:
        >>> to_uint8([-0.4, 12.6, 300.0])
        array([  0,  13, 255], dtype=uint8)
    """
    return np.clip(np.round(images), 0, 255).astype("uint8")


def _crop(sides, size, preprocessing):
    """Returns the height and width to resize to, and the corner (top, left) to crop from."""
    sides, crop = np.array(sides), np.array(size)
    if preprocessing.rounding == "none":
        smallest = crop / preprocessing.crop_fraction
        scaled = np.floor(sides * (smallest / sides).max() + 1e-6).astype(int)
    else:
        smallest = np.array([preprocessing.side_before_crop(side) for side in size])
        tight = (smallest / sides).argmax()  # the shorter side, if the crop is square
        scaled = smallest[tight] * sides // sides[tight]
    if preprocessing.rounding == "transformers":
        return scaled, (scaled - crop) // 2
    return scaled, np.round((scaled - crop) / 2).astype(int)


def _resize(images, size, preprocessing):
    if images.shape[-3:-1] == tuple(size):
        return images.astype("float32")
    if preprocessing.rounds_levels:
        images = to_uint8(images)
        for axis, length in ((-2, size[1]), (-3, size[0])):  # the order counts, as it is Pillow's
            images = _resize_axis(images, axis, int(length), preprocessing, _weighted_levels)
        return images.astype("float32")
    for axis, length in zip((-3, -2), size):
        images = _resize_axis(images, axis, int(length), preprocessing, _weighted_sum)
    return np.clip(images, 0.0, 255.0)  # a cubic kernel overshoots


def _resize_axis(images, axis, length, preprocessing, combine):
    """Resamples one axis: each new pixel is a weighted mean of `taps` neighbors."""
    kernel, radius = _kernel(preprocessing.interpolation)
    old = images.shape[axis]
    scale = old / length
    stretch = max(scale, 1.0) if preprocessing.antialias else 1.0
    centers = (np.arange(length) + 0.5) * scale - 0.5  # in old pixels
    first = np.ceil(centers - radius * stretch).astype(int)
    taps = int(2 * radius * stretch) + 1
    places = first[:, None] + np.arange(taps)  # (length, taps)
    weights = kernel(np.abs(places - centers[:, None]) / stretch)
    weights *= (places >= 0) & (places < old)
    weights /= weights.sum(axis=1, keepdims=True)
    images = np.moveaxis(images, axis, 0)  # (old, ...)
    return np.moveaxis(combine(images, places.clip(0, old - 1), weights), 0, axis)


def _weighted_sum(images, places, weights):
    """Sums rows `(old, ...)` at places `(length, taps)` in float32."""
    return _sum(images, places, weights.astype("float32"))


def _weighted_levels(images, places, weights):
    """Sums levels as Pillow does: with weights in 22 binary places, rounded to whole levels."""
    units = np.copysign(np.floor(np.abs(weights) * UNIT + 0.5), weights).astype("int32")
    return ((_sum(images, places, units) + UNIT // 2) // UNIT).clip(0, 255).astype("uint8")


def _sum(images, places, weights):
    total = np.zeros((len(places), *images.shape[1:]), weights.dtype)
    for place, weight in zip(places.T, weights.T):
        total += images[place].astype(weights.dtype) * weight.reshape(-1, *(1,) * (images.ndim - 1))
    return total


def _kernel(interpolation):
    if interpolation not in KERNELS:
        raise ValueError(
            f"`interpolation` must be one of {', '.join(map(repr, KERNELS))}. "
            f"Received: interpolation={interpolation!r}"
        )
    return KERNELS[interpolation]


def _triangle(x):
    return np.maximum(1 - x, 0)


def _keys_cubic(x):
    """The cubic convolution kernel with a = -0.5 (Keys 1981)."""
    near = (1.5 * x - 2.5) * x**2 + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


KERNELS = {"bilinear": (_triangle, 1.0), "bicubic": (_keys_cubic, 2.0)}
