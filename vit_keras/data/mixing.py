"""MixUp (arXiv 1710.09412) and CutMix (arXiv 1905.04899) of neighbours, by Keras' layers.

Example i mixes with example i ^ 1, and a pair's weight follows from (seed, its number) alone: a
batch in parts, or spread over processes, is the same batch.
"""

import keras
import tensorflow as tf

from vit_keras.data.randaugment import on_tensorflow


def is_active(config) -> bool:
    """Whether an `AugmentConfig` mixes images."""
    return bool(config.mixup_alpha or config.cutmix_alpha)


def check_pairs(config, batch: int, processes: int) -> None:
    """ValueError where pairs are mixed and a process's part of a batch would split one."""
    if is_active(config) and batch // processes % 2:
        raise ValueError(
            "MixUp and CutMix mix pairs of neighbours, so a process's part of a batch must be "
            f"even. Received: batch={batch} over {processes} processes"
        )


class Mixing:
    """What an `AugmentConfig` mixes, for images of `size` (height, width)."""

    def __init__(self, size, config):
        self.size, self.config = size, config
        self.mixup = keras.layers.MixUp(dtype="float32")
        self.cutmix = keras.layers.CutMix(dtype="float32")

    def draw(self, pair_key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """A pair's weight of MixUp, a scalar, and box of CutMix: top, left, bottom, right, `(4,)`.

        Weights are Beta(alpha, alpha). With both, a coin decides, and the other does nothing:
        weight 1, or a box without pixels.
        """
        keys, config = tf.random.split(pair_key, 4), self.config
        coin = tf.random.stateless_uniform((), keys[0])
        share = config.mixup_alpha and (0.5 if config.cutmix_alpha else 1.0)
        weight, box = tf.constant(1.0), tf.zeros((4,))
        if config.mixup_alpha:
            weight = tf.where(coin < share, _beta(keys[1], config.mixup_alpha), weight)
        if config.cutmix_alpha:
            area = 1 - _beta(keys[2], config.cutmix_alpha)
            box = tf.where(coin < share, box, _box(keys[3], area, self.size))
        return weight, box

    def __call__(self, images, labels, weights, boxes):
        """Mixes images `(B, H, W, C)` and one-hot labels `(B, K)` of neighbours; B is even.

        `weights` `(B,)` and `boxes` `(B, 4)` are what `draw` gave each example's pair.
        """
        (height, width), partner = self.size, tf.range(images.shape[0]) ^ 1
        if self.config.mixup_alpha:
            how = {"mix_weight": weights, "permutation_order": partner}
            images, labels = _transformed(self.mixup, images, labels, how)
        if self.config.cutmix_alpha:
            top, left, bottom, right = tf.unstack(boxes[:, :, None, None], axis=1)  # (B, 1, 1)
            y, x = tf.range(height, dtype=tf.float32)[:, None], tf.range(width, dtype=tf.float32)
            inside = (y >= top) & (y < bottom) & (x >= left) & (x < right)  # (B, H, W)
            kept = 1 - (bottom - top) * (right - left) / (height * width)
            how = {"batch_masks": inside[..., None], "mix_weight": kept[:, 0, 0]}
            how["permutation_order"] = partner
            images, labels = _transformed(self.cutmix, images, labels, how)
        return images, labels


def _transformed(layer, images, labels, how):
    with on_tensorflow(layer):
        return layer.transform_images(images, how), layer.transform_labels(labels, how)


def _beta(key, alpha):
    """Beta(alpha, alpha), a scalar; in float64, where no gamma of a small alpha is 0."""
    drawn = tf.random.stateless_gamma((2,), key, tf.constant(alpha, tf.float64), dtype=tf.float64)
    return tf.cast(drawn[0] / (drawn[0] + drawn[1]), tf.float32)


def _box(key, area, size):
    """A box about any pixel, of `area` of the image before it is cut at the edges."""
    sides = tf.constant(size, tf.float32)
    half = tf.floor(sides * tf.sqrt(area)) / 2
    center = tf.floor(tf.random.stateless_uniform((2,), key) * sides)
    low, high = tf.floor(center - half), tf.floor(center + half)
    return tf.concat([tf.clip_by_value(low, 0, sides), tf.clip_by_value(high, 0, sides)], axis=0)
