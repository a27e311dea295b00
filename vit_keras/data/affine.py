"""Rotates, scales, and shifts images by one resampling."""

import math

import tensorflow as tf


def is_active(config) -> bool:
    """Whether an `AugmentConfig` rotates, scales, or shifts."""
    return bool(config.rotation_degrees or config.scale or config.shift)


def draw(key: tf.Tensor, size: tuple[int, int], config) -> tf.Tensor:
    """Draws the affine map of one image.

    The map follows from the key alone, so an image changes to the same bits in any batch.

    Args:
        key: Two integers.
        size: Height and width in pixels.
        config: An `AugmentConfig`.

    Returns:
        The map from output to input coordinates, `(8,)`, for `ImageProjectiveTransformV3`.
    """
    height, width = size
    log_scale = math.log1p(config.scale)
    turn, shifts = config.rotation_degrees * math.pi / 180, [config.shift * side for side in size]
    limits = (turn, log_scale, log_scale, *shifts)
    amounts = tf.random.stateless_uniform((5,), key, -1.0, 1.0) * tf.constant(limits)
    angle, log_y, log_x, shift_y, shift_x = tf.unstack(amounts)
    scale_y, scale_x = tf.exp(log_y), tf.exp(log_x)
    cos, sin = tf.cos(angle), tf.sin(angle)
    center_y, center_x = (height - 1) / 2, (width - 1) / 2
    a, b, c, d = cos * scale_x, -sin * scale_y, sin * scale_x, cos * scale_y
    left = center_x + shift_x - a * center_x - b * center_y
    top = center_y + shift_y - c * center_x - d * center_y
    return tf.stack([a, b, left, c, d, top, 0.0, 0.0])


def warp(images: tf.Tensor, maps: tf.Tensor) -> tf.Tensor:
    """Applies the maps of `draw`, `(B, 8)`, to images `(B, H, W, C)`; edges are repeated."""
    return _transform(images, maps, "BILINEAR")


def warp_masks(masks: tf.Tensor, maps: tf.Tensor) -> tf.Tensor:
    """Applies the maps of `draw` to masks `(B, H, W)`: each pixel takes the nearest one's class."""
    warped = _transform(tf.cast(masks, tf.float32)[..., None], maps, "NEAREST")
    return tf.cast(warped[..., 0], masks.dtype)


def _transform(images, maps, interpolation):
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=maps,
        output_shape=images.shape[1:3],
        interpolation=interpolation,
        fill_mode="NEAREST",
        fill_value=0.0,
    )
