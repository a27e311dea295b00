"""Random changes of an image's colors and sharpness, as functions of a key.

Images are float32 `(H, W, C)` in [0, 255] with one channel or three, and keys are two integers.
"""

import math

import tensorflow as tf

JITTER = (0.4, 0.4, 0.2, 0.1)  # of brightness, contrast, saturation, and hue in DINO
JITTERED = 0.8  # share of the images
LUMA = (0.299, 0.587, 0.114)
LEAST_SIGMA = 0.1  # pixels
REACH = 3  # standard deviations to either side of a pixel that its blur takes in
THRESHOLD = 128.0  # solarize inverts pixels from here on


def jitter(image: tf.Tensor, key: tf.Tensor, strength: float) -> tf.Tensor:
    """Changes brightness, contrast, saturation, and hue of 80 % of the images, in a random order.

    Each of the first three is multiplied by a factor from 1 - s to 1 + s, and the hue is turned by
    up to s circles, where s is `strength` times the number in `JITTER`. An image of one channel has
    no saturation and no hue.
    """
    if not strength:
        return image
    keys = tf.random.split(key, 3)
    limits = strength * tf.constant(JITTER)
    drawn = tf.random.stateless_uniform((4,), keys[0], -1.0, 1.0) * limits
    changes = [
        lambda x: _clip(x * (1 + drawn[0])),
        lambda x: _blend(x, tf.reduce_mean(gray(x)), drawn[1]),
        lambda x: _blend(x, gray(x), drawn[2]),
        lambda x: _clip(255 * tf.image.adjust_hue(_clip(x) / 255, drawn[3])),
    ][: 4 if image.shape[-1] == 3 else 2]
    order = tf.argsort(tf.random.stateless_uniform((len(changes),), keys[1]))

    def changed():
        x = image
        for place in range(len(changes)):
            x = tf.switch_case(order[place], [lambda c=c, x=x: c(x) for c in changes])
        return x

    return _sometimes(JITTERED, keys[2], changed, image)


def grayscale(image: tf.Tensor, key: tf.Tensor, share) -> tf.Tensor:
    """Takes the colors of a `share` of the images; all channels become the luma."""
    if image.shape[-1] == 1:
        return image
    return _sometimes(share, key, lambda: tf.broadcast_to(gray(image), tf.shape(image)), image)


def blur(image: tf.Tensor, key: tf.Tensor, share, largest: float) -> tf.Tensor:
    """Blurs a `share` of the images by a Gaussian of 0.1 to `largest` pixels; edges are repeated.

    Weights beyond three times `largest` are left out.
    """
    if not largest:
        return image
    keys, reach = tf.random.split(key, 2), math.ceil(REACH * largest)
    sigma = tf.random.stateless_uniform((), keys[0], min(LEAST_SIGMA, largest), largest)
    weights = tf.exp(-tf.square(tf.range(-reach, reach + 1, dtype=tf.float32) / sigma) / 2)
    weights = (weights / tf.reduce_sum(weights))[:, None, None, None]
    kernel = tf.tile(weights, (1, 1, image.shape[-1], 1))  # (2 · reach + 1, 1, C, 1)

    def blurred():
        x = image[None]
        for axis, taps in ((1, kernel), (2, tf.transpose(kernel, (1, 0, 2, 3)))):
            size = tf.shape(x)[axis]
            places = tf.clip_by_value(tf.range(-reach, size + reach), 0, size - 1)
            x = tf.nn.depthwise_conv2d(tf.gather(x, places, axis=axis), taps, [1] * 4, "VALID")
        return tf.ensure_shape(x[0], image.shape)

    return _sometimes(share, keys[1], blurred, image)


def solarize(image: tf.Tensor, key: tf.Tensor, share) -> tf.Tensor:
    """Inverts the pixels of a `share` of the images that are 128 or brighter."""
    return _sometimes(share, key, lambda: tf.where(image < THRESHOLD, image, 255 - image), image)


def gray(image: tf.Tensor) -> tf.Tensor:
    """Returns the luma of an image `(H, W, C)`, `(H, W, 1)`."""
    if image.shape[-1] == 1:
        return image
    return tf.reduce_sum(image * tf.constant(LUMA), axis=-1, keepdims=True)


def _sometimes(share, key, change, image):
    return tf.cond(tf.random.stateless_uniform((), key) < share, change, lambda: image)


def _blend(image, other, change):
    """Moves an image away from `other`, or towards it for a negative `change`."""
    return _clip(image + change * (image - other))


def _clip(image):
    return tf.clip_by_value(image, 0.0, 255.0)
