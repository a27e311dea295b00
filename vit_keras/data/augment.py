"""Random changes of a batch of images; a pure function of the batch and a seed."""

import math

import tensorflow as tf


def augment(images: tf.Tensor, seed: tf.Tensor, config) -> tf.Tensor:
    """`(B, H, W, C)` float32 -> the same shape, each image turned, scaled, moved and mirrored.

    `config` is an `AugmentConfig`; `seed` two integers. One resampling does it all for the whole
    batch, which costs less than the step of a small model.
    """
    height, width = images.shape[1:3]
    batch = tf.shape(images)[0]
    spread = lambda i, limit: tf.random.stateless_uniform(
        (batch,), seed + tf.constant([0, i * 2**24], seed.dtype), -limit, limit
    )
    angle = spread(1, config.rotation_degrees * math.pi / 180)
    log_scale = math.log1p(config.scale)
    scale_y, scale_x = tf.exp(spread(2, log_scale)), tf.exp(spread(3, log_scale))
    shift_y, shift_x = spread(4, config.shift * height), spread(5, config.shift * width)
    if config.flip:
        scale_x *= tf.sign(spread(6, 1.0))
    cos, sin = tf.cos(angle), tf.sin(angle)
    center_y, center_x = (height - 1) / 2, (width - 1) / 2
    a, b, c, d = cos * scale_x, -sin * scale_y, sin * scale_x, cos * scale_y
    zeros = tf.zeros_like(a)
    left = center_x + shift_x - a * center_x - b * center_y
    top = center_y + shift_y - c * center_x - d * center_y
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack([a, b, left, c, d, top, zeros, zeros], axis=1),
        output_shape=(height, width),
        interpolation="BILINEAR",
        fill_mode="NEAREST",
        fill_value=0.0,
    )


def is_active(config) -> bool:
    """Whether `config` changes anything."""
    return bool(config.rotation_degrees or config.scale or config.shift or config.flip)
