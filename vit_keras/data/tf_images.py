"""Decodes pictures in TensorFlow's graph, for training and evaluation.

JPEG, PNG, and WebP give Pillow's pixels, upright by their EXIF orientation. Transparency is
dropped, as Pillow's `convert("RGB")` does, and of 16 bits per channel the high 8 are kept. Pillow
reads the other formats: GIF, of which TensorFlow would decode all frames, BMP, TIFF, AVIF, HEIC.
"""

import re
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from vit_keras.data.picture_bounds import is_modest
from vit_keras.data.pillow_images import (
    exif_orientation,
    open_encoded,
    read_encoded,
    unreadable_message,
)

HEAD = 32  # bytes that tell what a file is
LUMA = (19595, 38470, 7471)  # of R, G, and B in Pillow's grayscale, in 65536ths
FAULTS = (tf.errors.OpError, OSError, ValueError)  # what TensorFlow and Pillow raise for a picture
JPEG = {"channels": 3, "dct_method": "INTEGER_ACCURATE"}  # Pillow's arithmetic
JFIF_ALONE = b"\xff\xd8\xff\xe0" + b"\xff\xdb"  # bytes 0 to 3, and 20 to 21

Window = Callable[[tf.Tensor], tf.Tensor]


def decode(data: tf.Tensor, channels: int, window: Window | None = None) -> tf.Tensor:
    """Decodes a picture and turns it upright.

    Args:
        data: The bytes of a file, a scalar string.
        channels: 1 for grayscale or 3 for RGB.
        window: Chooses a part of the picture: from its shape, `(3,)` int32, to the part's top,
            left, height, and width, `(4,)`.

    Returns:
        The pixels as uint8, `(H, W, channels)`.

    Raises:
        One of `FAULTS` if the bytes are not a whole picture in a known format.
    """
    head = _head(data)
    simple = tf.cond(_is_plain_jpeg(head), lambda: _is_simple(data), lambda: tf.constant(False))
    picture = tf.cond(
        simple,
        lambda: _upright_jpeg(data, window),
        lambda: _in_own_function(lambda: cut(_any(data, head), window)),
    )
    picture = tf.ensure_shape(picture, (None, None, 3))
    return picture if channels == 3 else _gray(picture)


def fault_message(name: str, error: Exception) -> str:
    """Says why `decode` failed on a picture; `error` is one of `FAULTS`."""
    reason = re.sub(r"\{\{.*?\}\} ", "", getattr(error, "message", None) or str(error))
    first = reason.split(" [Op:")[0].splitlines()[0]
    return unreadable_message(name, first.removeprefix("ValueError: "))


def reason(name: str, read: Callable[[], tf.Tensor], channels: int) -> str:
    """Reads and decodes a picture again, to say why that failed."""
    try:
        decode(read(), channels)
    except FAULTS as error:
        return fault_message(name, error)
    return f"{name} could not be read at first, but can be read now"


def in_python(read: Callable, data: tf.Tensor, dtype: tf.DType, shape: tuple) -> tf.Tensor:
    """Calls a function of Python on a scalar in the graph; whatever it raises is in `FAULTS`.

    Args:
        read: A function from a scalar of NumPy, or bytes, to an array.
        data: The scalar.
        dtype: The type of the array.
        shape: Its shape; None for an unknown size.
    """

    def call(data):
        try:
            return read(data.item() if isinstance(data, np.ndarray) else data)
        except Exception as error:  # such as Pillow's DecompressionBombError
            raise ValueError(str(error) or type(error).__name__) from error

    return tf.ensure_shape(tf.numpy_function(call, [data], dtype, stateful=False), shape)


def _head(data):
    return tf.strings.substr(data, 0, HEAD) + b"\0" * HEAD  # even the shortest file has these


def _is_plain_jpeg(head):
    """Whether only a JFIF header comes before the tables, so that there is no EXIF."""
    return tf.equal(tf.strings.substr(head, 0, 4) + tf.strings.substr(head, 20, 2), JFIF_ALONE)


def _in_own_function(branch: Callable):
    """Traces a branch into a function; inlined, each of its operations costs time untaken."""
    if tf.executing_eagerly():
        return branch()
    return tf.function(branch, autograph=False, experimental_attributes={"_noinline": True})()


def _is_simple(data):
    """Whether a plain JPEG needs no look at it in Python: it is modest, and has no CMYK."""
    shape = tf.image.extract_jpeg_shape(data)
    pixels = tf.reduce_prod(tf.cast(shape[:2], tf.int64))
    size = tf.cast(tf.strings.length(data), tf.int64)
    return is_modest(pixels, size) & (shape[2] < 4)


def _upright_jpeg(data, window):
    if window is None:
        return tf.io.decode_jpeg(data, **JPEG)
    part = window(tf.image.extract_jpeg_shape(data))
    return tf.io.decode_and_crop_jpeg(data, part, **JPEG)


def _any(data, head):
    """Decodes a picture of any format and turns it upright."""
    starts = lambda place, mark: tf.equal(tf.strings.substr(head, place, len(mark)), mark)
    orientation = in_python(_inspect, data, tf.int32, ())
    with tf.control_dependencies([orientation]):  # nothing is decoded before the bounds are checked
        data = tf.identity(data)
    readers = [
        (orientation == 0, lambda: _by_pillow(data)),
        (starts(0, b"\xff\xd8\xff"), lambda: tf.io.decode_jpeg(data, **JPEG)),
        (starts(0, b"\x89PNG"), lambda: tf.io.decode_png(data, channels=3)),
    ]
    webp = lambda: tf.io.decode_image(data, expand_animations=False)[..., :3]  # no transparency
    return _turned(tf.case(readers, default=webp), tf.maximum(orientation, 1))


def _inspect(data):
    """Checks an encoded picture. Returns its EXIF orientation, or 0 if Pillow is to decode it.

    Pillow decodes what TensorFlow does not, or not alike: WebP with transparency, metadata, several
    frames, or bytes at its end, PNG of several frames, and JPEG in CMYK, which TensorFlow rounds
    down.
    """
    is_webp = data[8:12] == b"WEBP" and data[12:16] in (b"VP8 ", b"VP8L")
    is_whole_webp = is_webp and int.from_bytes(data[4:8], "little") + 8 == len(data)
    if not (is_whole_webp or data.startswith((b"\xff\xd8\xff", b"\x89PNG"))):
        return np.int32(0)
    with open_encoded(data) as picture:
        by_pillow = picture.mode == "CMYK" or getattr(picture, "is_animated", False)
    return np.int32(0 if by_pillow else exif_orientation(data))


def _by_pillow(data):
    return in_python(lambda data: read_encoded(data, 3), data, tf.uint8, (None, None, 3))


def _gray(picture):
    sums = tf.reduce_sum(tf.cast(picture, tf.int32) * tf.constant(LUMA), axis=-1, keepdims=True)
    return tf.cast((sums + 2**15) // 2**16, tf.uint8)


def cut(picture: tf.Tensor, window: Window | None) -> tf.Tensor:
    """Cuts out the part of a picture that `window` chooses; None keeps all of it."""
    if window is None:
        return picture
    top, left, height, width = tf.unstack(window(tf.shape(picture)))
    return picture[top : top + height, left : left + width]


def _turned(picture, orientation):
    """The picture upright; one function for each EXIF orientation."""
    mirror = lambda x: tf.reverse(x, [1])
    flip = lambda x: tf.reverse(x, [0])
    transpose = lambda x: tf.transpose(x, (1, 0, 2))
    turns = (
        lambda: picture,
        lambda: mirror(picture),
        lambda: flip(mirror(picture)),
        lambda: flip(picture),
        lambda: transpose(picture),
        lambda: mirror(transpose(picture)),
        lambda: flip(mirror(transpose(picture))),
        lambda: flip(transpose(picture)),
    )
    return tf.switch_case(orientation - 1, turns)
