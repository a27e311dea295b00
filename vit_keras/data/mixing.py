"""MixUp (arXiv 1710.09412) and CutMix (arXiv 1905.04899) of neighbors.

Example i is mixed with example i ^ 1. A pair's weight follows from the seed and the pair's number
alone, so a batch stays the same if it is split into parts or spread over processes. NumPy mixes
some rows of a pair at a time, which stay in the processor's cache, and puts them in the old ones'
place. The bits equal Keras' layers'.
"""

import numpy as np
import tensorflow as tf

ROWS = 56  # of a pair that are mixed at once


def is_active(config) -> bool:
    """Whether an `AugmentConfig` mixes images."""
    return bool(config.mixup_alpha or config.cutmix_alpha)


def check_pairs(config, batch: int, processes: int) -> None:
    """Raises ValueError if a process's part of a batch would split a pair that is mixed."""
    if is_active(config) and batch // processes % 2:
        raise ValueError(
            "MixUp and CutMix mix pairs of neighbors, so a process's part of a batch must be even. "
            f"Received: batch={batch} over {processes} processes"
        )


class Mixing:
    """Mixes images and labels as an `AugmentConfig` says.

    Args:
        size: Height and width of the images in pixels.
        config: An `AugmentConfig`.
    """

    def __init__(self, size, config):
        self.size, self.config = size, config

    def draw(self, pair_key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws how a pair of neighbors is mixed.

        MixUp's weights are Beta(alpha, alpha). If both methods are active, a coin chooses one, and
        the other does nothing: it has weight 1, or a box without pixels.

        Returns:
            MixUp's weight, a scalar, and CutMix's box: top, left, bottom, and right, `(4,)`.
        """
        keys, config = tf.random.split(pair_key, 4), self.config
        weight, box = tf.constant(1.0), tf.zeros((4,))
        is_mixed = True
        if config.mixup_alpha and config.cutmix_alpha:
            is_mixed = tf.random.stateless_uniform((), keys[0]) < 0.5
        if config.mixup_alpha:
            weight = tf.where(is_mixed, _beta(keys[1], config.mixup_alpha), weight)
        if config.cutmix_alpha:
            area = 1 - _beta(keys[2], config.cutmix_alpha)
            cut = _box(keys[3], area, self.size)
            box = tf.where(is_mixed, box, cut) if config.mixup_alpha else cut
        return weight, box

    def __call__(self, images, labels, weights, boxes):
        """Mixes neighbors.

        Args:
            images: `(B, H, W, C)` with an even B.
            labels: One-hot labels, `(B, K)`.
            weights: The weight of each example's pair, `(B,)`.
            boxes: The box of each example's pair, `(B, 4)`.

        Returns:
            The mixed images and labels.
        """
        # The copy in a snapshot is left out where nothing else holds the images, as in a pipeline.
        taken = tf.raw_ops.Snapshot(input=images)
        made = tf.numpy_function(mix, [taken, weights, boxes], tf.float32, stateful=False)
        top, left, bottom, right = tf.unstack(boxes[:, :, None], axis=1)  # (B, 1)
        cut = (bottom - top) * (right - left) / (self.size[0] * self.size[1])
        for kept in (weights[:, None], 1 - cut):
            labels = kept * labels + (1 - kept) * tf.gather(labels, tf.range(labels.shape[0]) ^ 1)
        return tf.ensure_shape(made, images.shape), labels


def mix(images: np.ndarray, weights: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Mixes neighbors in place.

    Args:
        images: `(B, H, W, C)`, which is changed.
        weights: The weights of the examples' pairs, `(B,)`.
        boxes: The boxes of the examples' pairs, `(B, 4)`.

    Returns:
        `images`.
    """
    for i in range(0, len(images), 2):
        first, second = images[i], images[i + 1]
        if weights[i] != 1:
            for top in range(0, len(first), ROWS):
                _blend(first[top : top + ROWS], second[top : top + ROWS], weights[i])
        top, left, bottom, right = boxes[i].astype(int)
        inside = slice(top, bottom), slice(left, right)
        cut = first[inside].copy()
        first[inside] = second[inside]
        second[inside] = cut
    return images


def _blend(first, second, weight):
    """Makes `weight` of each image and the rest of the other one, in both."""
    rest = (1 - weight) * first
    first *= weight
    first += (1 - weight) * second
    second *= weight
    second += rest


def _beta(key, alpha):
    """Draws a scalar of Beta(alpha, alpha), in float64, since float32 gammas may underflow."""
    alpha = tf.constant(alpha, tf.float64)
    first, second = tf.unstack(tf.random.stateless_gamma((2,), key, alpha, dtype=tf.float64))
    return tf.cast(first / (first + second), tf.float32)


def _box(key, area, size):
    """Draws a box around any pixel; it has the share `area` before it is cut at the edges."""
    sides = tf.constant(size, tf.float32)
    half = tf.floor(sides * tf.sqrt(area)) / 2
    center = tf.floor(tf.random.stateless_uniform((2,), key) * sides)
    low, high = tf.floor(center - half), tf.floor(center + half)
    return tf.concat([tf.clip_by_value(low, 0, sides), tf.clip_by_value(high, 0, sides)], axis=0)
