"""Turning, scaling and moving images: one resampling does it all."""

import math

import tensorflow as tf


def is_active(config) -> bool:
    """Whether an `AugmentConfig` turns, scales or moves."""
    return bool(config.rotation_degrees or config.scale or config.shift)


def draw(key: tf.Tensor, size: tuple[int, int], config) -> tf.Tensor:
    """The random map of an image of `size` (height, width), `(8,)`, as TensorFlow takes it.

    `config` is an `AugmentConfig`, `key` two integers. By example: whatever batch it comes in, an
    image is changed to the same bits.
    """
    height, width = size
    log_scale = math.log1p(config.scale)
    limits = (config.rotation_degrees * math.pi / 180, log_scale, log_scale)
    limits += (config.shift * height, config.shift * width)
    drawn = tf.random.stateless_uniform((5,), key, -1.0, 1.0) * tf.constant(limits)
    angle, log_y, log_x, shift_y, shift_x = tf.unstack(drawn)
    scale_y, scale_x = tf.exp(log_y), tf.exp(log_x)
    cos, sin = tf.cos(angle), tf.sin(angle)
    center_y, center_x = (height - 1) / 2, (width - 1) / 2
    a, b, c, d = cos * scale_x, -sin * scale_y, sin * scale_x, cos * scale_y
    left = center_x + shift_x - a * center_x - b * center_y
    top = center_y + shift_y - c * center_x - d * center_y
    return tf.stack([a, b, left, c, d, top, 0.0, 0.0])


def warp(images: tf.Tensor, maps: tf.Tensor) -> tf.Tensor:
    """Images `(B, H, W, C)` by the maps `(B, 8)` that `draw` made; edges are repeated."""
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=maps,
        output_shape=images.shape[1:3],
        interpolation="BILINEAR",
        fill_mode="NEAREST",
        fill_value=0.0,
    )
