"""Plain functions of images: reading a file, resizing, scaling pixels."""

import os

import numpy as np
import tensorflow as tf

from vit_keras.models import Preprocessing

MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def read_image(path: str | os.PathLike, channels: int) -> np.ndarray:
    """The picture in a file as `(H, W, channels)` uint8, upright by its EXIF orientation.

    Raises FileNotFoundError or ValueError with the path where it is missing or unreadable.
    """
    from PIL import Image, ImageOps

    if channels not in MODES:
        raise ValueError(f"Pictures have 1, 3 or 4 channels. Received: channels={channels}")
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no image at {os.fspath(path)!r}.")
    try:
        with Image.open(path) as picture:
            picture = ImageOps.exif_transpose(picture).convert(MODES[channels])
            return np.asarray(picture).reshape(picture.height, picture.width, channels)
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)!r} cannot be read as an image ({error}).") from error


def resize(images, size: tuple[int, int], preprocessing: Preprocessing) -> tf.Tensor:
    """An image `(H, W, C)` or a batch to `size` (height, width); float32 in [0, 255].

    The whole picture is squeezed to `size`, or with a `crop_fraction` the middle of it is cut out:
    that fraction of the shorter side, in the shape of `size`.
    """
    images = tf.convert_to_tensor(images)
    if preprocessing.crop_fraction is not None:
        return _resize_and_crop(images, size, preprocessing)
    if images.shape[-3:-1] == tf.TensorShape(size):
        return tf.cast(images, tf.float32)
    return _resized(images, size, preprocessing)


def _resized(images, size, preprocessing):
    how = {"method": preprocessing.interpolation, "antialias": preprocessing.antialias}
    return tf.clip_by_value(tf.cast(tf.image.resize(images, size, **how), tf.float32), 0.0, 255.0)


def _resize_and_crop(images, size, preprocessing):
    """Scales the picture until `size` is `crop_fraction` of it, then cuts `size` out."""
    sides = tf.cast(tf.shape(images)[-3:-1], tf.float64)
    wanted = tf.constant(size, tf.float64) / preprocessing.crop_fraction
    scaled = tf.cast(tf.math.floor(sides * tf.reduce_max(wanted / sides) + 1e-6), tf.int32)
    images = _resized(images, scaled, preprocessing)
    top = tf.cast(tf.round(tf.cast(scaled - tf.constant(size), tf.float64) / 2), tf.int32)
    return images[..., top[0] : top[0] + size[0], top[1] : top[1] + size[1], :]


def normalise(images, preprocessing: Preprocessing):
    """Pixels from [0, 255] to what the model wants, by default [-1, 1]."""
    return preprocessing.normalise(images)
