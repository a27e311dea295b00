"""Crops, resizes, and mirrors images in TensorFlow's graph; random functions take a key."""

import tensorflow as tf

from vit_keras.models import Preprocessing

SMALL = 96 * 96  # pixels; the BiT-HyperRule crops 128 from 160 below this, 480 from 512 above
SHARES = (128 / 160, 480 / 512)


def resize(images, size: tuple[int, int], preprocessing: Preprocessing) -> tf.Tensor:
    """Resizes an image `(H, W, C)` or a batch to `size` (height, width); float32 in [0, 255].

    Without a `crop_fraction`, the whole image is squeezed to `size`. With one, the central part is
    cut out: that fraction of the shorter side, in the aspect ratio of `size`.
    """
    images = tf.convert_to_tensor(images)
    if preprocessing.crop_fraction is not None:
        return _resize_and_crop(images, size, preprocessing)
    return squeeze(images, size, preprocessing)


def squeeze(images, size: tuple[int, int], preprocessing: Preprocessing) -> tf.Tensor:
    """Squeezes a whole image `(H, W, C)` or a batch to `size`, whatever its shape; float32."""
    if images.shape[-3:-1] == tf.TensorShape(size):
        return tf.cast(images, tf.float32)
    return _resize(images, size, preprocessing)


def inception_window(shape: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Draws a part of an image, as big_vision's `inception_crop` does.

    The part has 5 to 100% of the area: see `random_window`.
    """
    return random_window(shape, key, (0.05, 1.0))


def random_window(shape: tf.Tensor, key: tf.Tensor, area: tuple[float, float]) -> tf.Tensor:
    """Draws a part of an image with an aspect ratio from 0.75 to 1.33.

    After 100 draws that do not fit into the image, the whole image is taken.

    Args:
        shape: (H, W, C).
        key: Two integers.
        area: The smallest and the largest fraction of the image's area.

    Returns:
        Top, left, height, and width, `(4,)` int32.
    """
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.zeros((0, 0, 4)),
        key,
        min_object_covered=0.0,
        area_range=area,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], size[:2]], axis=0)


def bit_crop(image, size: tuple[int, int], preprocessing: Preprocessing, key) -> tf.Tensor:
    """Squeezes an image to more than `size` and cuts out `size` at a random place; float32.

    The first size follows the BiT-HyperRule (arXiv 1912.11370, Section 4.1): 160/128 of `size` for
    an image with fewer than 96 x 96 pixels, and 512/480 otherwise. `key` is two integers.
    """
    sides = tf.shape(image)[:2]
    small, large = (tf.constant([round(side / share) for side in size]) for share in SHARES)
    resized = tf.where(tf.reduce_prod(sides) < SMALL, small, large)
    image = _resize(image, resized, preprocessing)
    free = tf.cast(resized - tf.constant(size) + 1, tf.float32)
    place = tf.cast(tf.random.stateless_uniform((2,), key) * free, tf.int32)
    image = image[place[0] : place[0] + size[0], place[1] : place[1] + size[1]]
    return tf.ensure_shape(image, (*size, image.shape[-1]))


def flip(image: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Mirrors an image `(H, W, C)` left to right half of the time. `key` is two integers."""
    return tf.cond(
        tf.random.stateless_uniform((), key) < 0.5, lambda: tf.reverse(image, [1]), lambda: image
    )


def _resize(images, size, preprocessing):
    method, antialias = preprocessing.interpolation, preprocessing.antialias
    resized = lambda pixels, sides: tf.image.resize(pixels, sides, method, antialias=antialias)
    if preprocessing.rounds_levels:
        return _resize_levels(images, size, resized)
    images = tf.cast(resized(images, size), tf.float32)
    if method == "bilinear":  # a mean of pixels lies between them
        return images
    return tf.clip_by_value(images, 0.0, 255.0)


def _resize_levels(images, size, resized):
    """Resizes the columns and then the rows, as Pillow does, and rounds levels after each.

    The axis comes first and the other one is among the channels, which TensorFlow sums at once.
    """
    whole = lambda levels: tf.clip_by_value(tf.floor(levels + 0.5), 0.0, 255.0)
    height, width, channels = size[0], size[1], images.shape[-1]
    *_, rows, columns, _ = tf.unstack(tf.shape(images))
    x = tf.transpose(tf.reshape(images, (-1, rows, columns, channels)), (0, 2, 1, 3))
    x = whole(resized(tf.reshape(x, (-1, columns, 1, rows * channels)), (width, 1)))
    x = tf.transpose(tf.reshape(x, (-1, width, rows, channels)), (0, 2, 1, 3))  # (B, H, w, C)
    x = whole(resized(tf.reshape(x, (-1, rows, 1, width * channels)), (height, 1)))
    return tf.reshape(x, tf.concat([tf.shape(images)[:-3], [height, width, channels]], axis=0))


def _resize_and_crop(images, size, preprocessing):
    """Scales images until `size` is `crop_fraction` of them, then cuts out `size`."""
    scaled = _scaled_sides(tf.shape(images)[-3:-1], size, preprocessing)
    images = _resize(images, scaled, preprocessing)
    rest = scaled - tf.constant(size)
    if preprocessing.rounding == "transformers":
        top = rest // 2
    else:
        top = tf.cast(tf.round(tf.cast(rest, tf.float64) / 2), tf.int32)
    return images[..., top[0] : top[0] + size[0], top[1] : top[1] + size[1], :]


def _scaled_sides(sides, size, preprocessing):
    """Returns the height and width of an image before the crop, as in `numpy_preprocess`."""
    if preprocessing.rounding == "none":
        smallest, sides = tf.constant(size, tf.float64), tf.cast(sides, tf.float64)
        share = tf.reduce_max(smallest / preprocessing.crop_fraction / sides)
        return tf.cast(tf.math.floor(sides * share + 1e-6), tf.int32)
    smallest = tf.constant([preprocessing.side_before_crop(side) for side in size])
    tight = tf.argmax(smallest / sides)
    return smallest[tight] * sides // sides[tight]
