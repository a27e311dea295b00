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


def resize(images: tf.Tensor, size: tuple[int, int], preprocessing: Preprocessing) -> tf.Tensor:
    """One image or a batch to `size` (height, width), whatever its shape; float32 in [0, 255]."""
    images = tf.convert_to_tensor(images)
    if images.shape[-3:-1] == tf.TensorShape(size):
        return tf.cast(images, tf.float32)
    resized = tf.image.resize(
        images, size, preprocessing.interpolation, antialias=preprocessing.antialias
    )
    return tf.cast(resized, tf.float32)


def normalise(images, preprocessing: Preprocessing):
    """Pixels from [0, 255] to what the model wants, by default [-1, 1]."""
    mean, std = (255 * np.asarray(v, "float32") for v in (preprocessing.mean, preprocessing.std))
    return (images - mean) / std
