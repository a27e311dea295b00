"""Plain functions of images: choosing a part, resizing, scaling pixels. Random ones take a key."""

import tensorflow as tf

from vit_keras.models import Preprocessing

SMALL = 96 * 96  # pixels: below, the BiT-HyperRule cuts 128 from 160, and above 480 from 512
SHARES = (128 / 160, 480 / 512)


def resize(images, size: tuple[int, int], preprocessing: Preprocessing) -> tf.Tensor:
    """An image `(H, W, C)` or a batch to `size` (height, width); float32 in [0, 255].

    The whole picture is squeezed to `size`, or with a `crop_fraction` the middle of it is cut out:
    that fraction of the shorter side, in the shape of `size`.
    """
    images = tf.convert_to_tensor(images)
    if preprocessing.crop_fraction is not None:
        return _resize_and_crop(images, size, preprocessing)
    return squeeze(images, size, preprocessing)


def squeeze(images, size: tuple[int, int], preprocessing: Preprocessing) -> tf.Tensor:
    """The whole of an image `(H, W, C)` or a batch at `size`, whatever its shape; float32."""
    if images.shape[-3:-1] == tf.TensorShape(size):
        return tf.cast(images, tf.float32)
    return _resized(images, size, preprocessing)


def inception_window(shape: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """A random part of an image: top, left, height, width, `(4,)` int32.

    Of 5 to 100 % of the area and a ratio of sides from 0.75 to 1.33, or the whole image after 100
    draws that do not fit in it; as big_vision's `inception_crop`. `shape` is (H, W, C), `key` two
    integers.
    """
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros((0, 0, 4)),
        key,
        min_object_covered=0.0,
        area_range=(0.05, 1.0),
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], size[:2]], axis=0)


def bit_crop(image, size: tuple[int, int], preprocessing: Preprocessing, key) -> tf.Tensor:
    """Squeezes an image to somewhat more than `size` and cuts `size` out anywhere; float32.

    By the BiT-HyperRule (arXiv 1912.11370, 4.1): 160/128 of `size` for an image of less than
    96 x 96 pixels, otherwise 512/480. `key` is two integers.
    """
    sides = tf.shape(image)[:2]
    small, large = (tf.constant([round(side / share) for side in size]) for share in SHARES)
    wanted = tf.where(tf.reduce_prod(sides) < SMALL, small, large)
    image = _resized(image, wanted, preprocessing)
    free = tf.cast(wanted - tf.constant(size) + 1, tf.float32)
    place = tf.cast(tf.random.stateless_uniform((2,), key) * free, tf.int32)
    image = image[place[0] : place[0] + size[0], place[1] : place[1] + size[1]]
    return tf.ensure_shape(image, (*size, image.shape[-1]))


def flip(image: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """An image `(H, W, C)`, mirrored left to right half of the time. `key` is two integers."""
    return tf.cond(
        tf.random.stateless_uniform((), key) < 0.5, lambda: tf.reverse(image, [1]), lambda: image
    )


def _resized(images, size, preprocessing):
    how = {"method": preprocessing.interpolation, "antialias": preprocessing.antialias}
    images = tf.cast(tf.image.resize(images, size, **how), tf.float32)
    if preprocessing.interpolation == "bilinear":  # a mean of pixels lies between them
        return images
    return tf.clip_by_value(images, 0.0, 255.0)


def _resize_and_crop(images, size, preprocessing):
    """Scales the picture until `size` is `crop_fraction` of it, then cuts `size` out."""
    sides = tf.cast(tf.shape(images)[-3:-1], tf.float64)
    wanted = tf.constant(size, tf.float64) / preprocessing.crop_fraction
    scaled = tf.cast(tf.math.floor(sides * tf.reduce_max(wanted / sides) + 1e-6), tf.int32)
    images = _resized(images, scaled, preprocessing)
    top = tf.cast(tf.round(tf.cast(scaled - tf.constant(size), tf.float64) / 2), tf.int32)
    return images[..., top[0] : top[0] + size[0], top[1] : top[1] + size[1], :]
