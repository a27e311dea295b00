"""From the bytes of a picture to its pixels, in TensorFlow's graph: the one reader of all scripts.

JPEG, PNG, GIF (its first frame), WebP and BMP give the pixels that Pillow gives, upright by their
EXIF orientation. Transparency is dropped, as Pillow's `convert("RGB")` does, and 16 bits a channel
are scaled to 8.
"""

import io
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp")
EXIF_MARKS = (b"Exif\x00\x00", b"eXIf", b"EXIF")  # of JPEG, PNG and WebP
ORIENTATION = 0x0112  # the EXIF tag: 1 upright, then 2 to 8
HEAD = 32  # bytes that tell what a file is
LUMA = (19595, 38470, 7471)  # of R, G and B in Pillow's grey, in 65536ths
FAULTS = (tf.errors.OpError, OSError, ValueError)  # of a picture, from TensorFlow and Pillow
JPEG = {"channels": 3, "dct_method": "INTEGER_ACCURATE"}  # Pillow's arithmetic
JFIF_ALONE = b"\xff\xd8\xff\xe0" + b"\xff\xdb"  # bytes 0 to 3, 20 and 21

Window = Callable[[tf.Tensor], tf.Tensor]


def check_channels(channels: int) -> None:
    """Raises ValueError unless pictures can have so many channels."""
    if channels not in (1, 3):
        raise ValueError(f"Pictures have 1 or 3 channels. Received: channels={channels}")


def decode(data: tf.Tensor, channels: int, window: Window | None = None) -> tf.Tensor:
    """The picture in `data`, a scalar string -> `(H, W, channels)` uint8; 1 is grey, 3 RGB.

    `window` maps the picture's shape, (3,) int32, to the part wanted: top, left, height, width.
    Raises one of `FAULTS` where the bytes are no whole picture of a format above.
    """
    head = _head(data)
    picture = tf.cond(
        _is_plain_jpeg(head),
        lambda: _upright_jpeg(data, window),
        lambda: apart(lambda: _any(data, head, window)),
    )
    return _in_colours(picture, channels)


def read_image(path: str | os.PathLike, channels: int) -> np.ndarray:
    """The picture in a file as `(H, W, channels)` uint8, upright by its EXIF orientation.

    Raises FileNotFoundError or ValueError with the path where it is missing or unreadable.
    """
    check_channels(channels)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no image at {os.fspath(path)!r}.")
    try:
        return decode(tf.io.read_file(os.fspath(path)), channels).numpy()
    except FAULTS as error:
        raise ValueError(unreadable(repr(os.fspath(path)), error)) from error


def unreadable(name: str, error: Exception) -> str:
    """What to say of a picture that `decode` failed on, with one of `FAULTS`."""
    reason = (getattr(error, "message", None) or str(error)).split("}} ", 1)[-1]
    reason = reason.split(" [Op:")[0].splitlines()[0]
    kinds = ", ".join(suffix[1:] for suffix in SUFFIXES)
    return f"{name} cannot be read as an image ({reason}). It must be a whole {kinds} file"


def _head(data):
    return tf.strings.substr(data, 0, HEAD) + b"\0" * HEAD  # of the shortest file as well


def _is_plain_jpeg(head):
    """Whether nothing but a JFIF header comes before the tables, so that there is no EXIF."""
    return tf.equal(tf.strings.substr(head, 0, 4) + tf.strings.substr(head, 20, 2), JFIF_ALONE)


def apart(branch: Callable):
    """A branch in a function of its own: what is not taken costs time as well, by operation."""
    if tf.executing_eagerly():
        return branch()
    return tf.function(branch, autograph=False, experimental_attributes={"_noinline": True})()


def _upright_jpeg(data, window):
    if window is None:
        return tf.io.decode_jpeg(data, **JPEG)
    part = window(tf.image.extract_jpeg_shape(data))
    return tf.io.decode_and_crop_jpeg(data, part, **JPEG)


def _any(data, head, window):
    """A picture of any format, turned upright."""
    starts = lambda place, mark: tf.equal(tf.strings.substr(head, place, len(mark)), mark)
    readers = [
        (starts(0, b"\xff\xd8\xff"), lambda: tf.io.decode_jpeg(data, **JPEG)),
        (starts(0, b"\x89PNG") & starts(24, b"\x10"), lambda: _deep_png(data)),
        (starts(8, b"WEBP"), lambda: tf.io.decode_image(data, expand_animations=False)),
        (starts(0, b"BM"), lambda: _bmp(data)),
    ]
    other = lambda: tf.io.decode_image(data, channels=3, expand_animations=False)
    picture = tf.case(readers, default=other)[..., :3]  # WebP may have brought transparency
    return cut(_turned(picture, _orientation(data)), window)


def _in_colours(picture, channels):
    picture = tf.ensure_shape(picture, (None, None, 3))
    return picture if channels == 3 else _grey(picture)


def _deep_png(data):
    picture = tf.io.decode_png(data, channels=3, dtype=tf.uint16)
    return tf.cast(tf.round(tf.cast(picture, tf.float32) / 257), tf.uint8)


def _bmp(data):
    """By Pillow: TensorFlow takes a palette's indices for greys."""
    return tf.ensure_shape(tf.numpy_function(_read_bmp, [data], tf.uint8), (None, None, 3))


def _read_bmp(data):
    from PIL import Image

    with Image.open(io.BytesIO(_bytes(data))) as picture:
        return np.asarray(picture.convert("RGB"))


def _grey(picture):
    sums = tf.reduce_sum(tf.cast(picture, tf.int32) * tf.constant(LUMA), axis=-1, keepdims=True)
    return tf.cast((sums + 2**15) // 2**16, tf.uint8)


def cut(picture: tf.Tensor, window: Window | None) -> tf.Tensor:
    """The part of a picture that `window` chooses by its shape; all of it for None."""
    if window is None:
        return picture
    top, left, height, width = tf.unstack(window(tf.shape(picture)))
    return picture[top : top + height, left : left + width]


def _orientation(data):
    """The EXIF orientation, a scalar int32 from 1 to 8."""
    found = tf.numpy_function(_read_orientation, [data], tf.int32, stateful=False)
    return tf.ensure_shape(found, ())


def _read_orientation(data):
    from PIL import Image

    data = _bytes(data)
    if not any(mark in data for mark in EXIF_MARKS):
        return np.int32(1)
    try:
        with Image.open(io.BytesIO(data)) as picture:
            found = picture.getexif().get(ORIENTATION, 1)
    except (OSError, SyntaxError, ValueError):  # decoding says what is wrong
        return np.int32(1)
    return np.int32(found if found in range(1, 9) else 1)


def _bytes(data):
    return data.item() if isinstance(data, np.ndarray) else data  # in a graph they are bytes


def _turned(picture, orientation):
    """The picture upright: what each EXIF orientation asks for."""
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
