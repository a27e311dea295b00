"""Random views of an image for self-distillation (multi-crop, arXiv 2104.14294, Section 3.1)."""

import tensorflow as tf

from vit_keras.config import DinoConfig
from vit_keras.data import colors, tf_preprocess
from vit_keras.models import Preprocessing

GLOBAL_VIEWS = 2
# Shares of the views that are blurred: the first and the second global one, and the local ones.
BLURRED = (1.0, 0.1, 0.5)


class Views:
    """Makes two global views and several small local views of each image.

    A view is a random part of the image, resized by antialiased bicubic interpolation and mirrored
    half of the time if `flip` says so. Its colors are then jittered, its saturation is taken, and
    it is blurred and solarized, each with a probability of its own. All of this follows from the
    key of the image alone.

    Args:
        config: The views' sizes, areas, and colors.
        image_size: Height and width of a global view in pixels.
        preprocessing: The model's preprocessing, which normalizes the views.
        flip: Whether to mirror.
    """

    def __init__(
        self,
        config: DinoConfig,
        image_size: tuple[int, int],
        preprocessing: Preprocessing,
        flip: bool = False,
    ):
        self.config, self.flip, self.preprocessing = config, flip, preprocessing
        self.size, self.local_size = tuple(image_size), (config.local_size,) * 2

    def draw(self, image: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws the views of an image `(H, W, C)` in [0, 255].

        Args:
            image: The whole image.
            key: Two integers.

        Returns:
            The global views `(2, H', W', C)` and the local ones `(n, h, w, C)`, float32, as the
            model takes them.
        """
        config, count = self.config, self.config.local_crops
        keys = tf.random.split(key, GLOBAL_VIEWS + count)
        solarized = (0.0, config.solarize)
        shares = list(zip(BLURRED[:GLOBAL_VIEWS], solarized)), [(BLURRED[-1], 0.0)] * count
        return (
            self._draw(image, keys[:GLOBAL_VIEWS], shares[0], config.global_scale, self.size),
            self._draw(image, keys[GLOBAL_VIEWS:], shares[1], config.local_scale, self.local_size),
        )

    def batch(self, views, weights=None):
        """Makes a batch for `fit`: (views, targets, weights), whose targets are zeros `(B, 2)`."""
        targets = tf.zeros((tf.shape(views[0])[0], 2))
        return (views, targets) if weights is None else (views, targets, weights)

    def _draw(self, image, keys, shares, scale, size):
        spec = tf.TensorSpec((*size, image.shape[-1]), tf.float32)
        one = lambda drawn: self._view(image, drawn[0], drawn[1], scale, size)
        return tf.map_fn(one, (keys, tf.constant(shares)), fn_output_signature=spec)

    def _view(self, image, key, shares, scale, size):
        config, keys = self.config, tf.random.split(key, 6)
        window = tf_preprocess.random_window(tf.shape(image), keys[0], scale)
        top, left, height, width = tf.unstack(window)
        view = image[top : top + height, left : left + width]
        view = tf.image.resize(view, size, "bicubic", antialias=True)
        view = tf.clip_by_value(tf.ensure_shape(view, (*size, image.shape[-1])), 0.0, 255.0)
        if self.flip:
            view = tf_preprocess.flip(view, keys[1])
        view = colors.jitter(view, keys[2], config.color_jitter)
        view = colors.grayscale(view, keys[3], config.grayscale)
        view = colors.blur(view, keys[4], shares[0], config.blur_sigma)
        return self.preprocessing.normalize(colors.solarize(view, keys[5], shares[1]))
