"""Random erasing (arXiv 1708.04896): replaces a part of an image by noise, as a function of a key.

The part and the noise follow timm's code: 2 to 33 % of the area, sides in a ratio from 0.3 to 3.3,
and normal noise for each pixel of a standardized image.
"""

import math

import tensorflow as tf

AREA = (0.02, 1 / 3)
RATIO = 0.3  # of the sides; its logarithm is uniform, up to the inverse
ATTEMPTS = 10  # at a part that fits into the image


def erase(image: tf.Tensor, key: tf.Tensor, share: float) -> tf.Tensor:
    """Replaces a part of a `share` of the images by normal noise.

    Args:
        image: `(H, W, C)` float32, as the model takes it.
        key: Two integers.
        share: The share of the images, 0 to 1.

    Returns:
        The image, of the same shape.
    """
    keys = tf.random.split(key, 3)

    def erased():
        top, left, height, width = tf.unstack(box(keys[1], tuple(image.shape[:2])))
        noise = tf.random.stateless_normal((height, width, image.shape[2]), keys[2])
        rows = image[top : top + height]
        rows = tf.concat([rows[:, :left], noise, rows[:, left + width :]], axis=1)
        whole = tf.concat([image[:top], rows, image[top + height :]], axis=0)
        return tf.ensure_shape(whole, image.shape)

    return tf.cond(tf.random.stateless_uniform((), keys[0]) < share, erased, lambda: image)


def box(key: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Draws the part to erase: the first of ten that fits, or nothing.

    Args:
        key: Two integers.
        size: The image's height and width.

    Returns:
        Top, left, height, and width, `(4,)` int32.
    """
    area, ratio, y, x = tf.unstack(tf.random.stateless_uniform((4, ATTEMPTS), key))
    area = (AREA[0] + (AREA[1] - AREA[0]) * area) * (size[0] * size[1])
    ratio = tf.exp(math.log(RATIO) * (1 - 2 * ratio))
    sides = tf.round(tf.sqrt(tf.stack([area * ratio, area / ratio])))  # (2, ATTEMPTS)
    free = tf.constant(size, tf.float32)[:, None] - sides
    fits = tf.reduce_all(free > 0, axis=0)
    first = tf.argmax(fits)
    start = tf.floor(tf.stack([y, x]) * (free + 1))
    drawn = tf.concat([start[:, first], sides[:, first]], axis=0)
    return tf.cast(tf.where(tf.reduce_any(fits), drawn, tf.zeros(4)), tf.int32)
