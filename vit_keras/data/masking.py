"""Which patches are corrupted and what is to be predicted of them, of the images of a run."""

import tensorflow as tf

from vit_keras.config import PretextConfig
from vit_keras.models import Preprocessing

# Shares of the corrupted patches: by the mask, by another patch; the rest stays (BERT's).
SHARES = {"masked_patch": (0.8, 0.1), "mae": (1.0, 0.0)}
VARIANCE_EPSILON = 1e-6  # MAE's


class Masking:
    """What a `PretextConfig` makes of images of `image_size` (height, width) pixels.

    What is drawn for an image follows from its key alone, whatever batch it comes in.
    """

    def __init__(
        self,
        config: PretextConfig,
        image_size: tuple[int, int],
        patch_size: tuple[int, int],
        preprocessing: Preprocessing,
    ):
        self.config, self.patch_size = config, patch_size
        self.preprocessing = preprocessing
        self.grid = tuple(size // patch for size, patch in zip(image_size, patch_size))
        self.patches = self.grid[0] * self.grid[1]
        self.corrupted = config.corrupted(self.patches)

    def draw(self, key: tf.Tensor) -> dict[str, tf.Tensor]:
        """An image's `source` `(N,)` int32, of `layers.masking`, and `corrupted` `(N,)` bool.

        `key` is two integers. Exactly `config.corrupted(N)` patches are corrupted.
        """
        keys, places = tf.random.split(key, 8)[5:], tf.range(self.patches)
        order = tf.argsort(tf.random.stateless_uniform((self.patches,), keys[0]))
        corrupted = tf.argsort(order) < self.corrupted
        kind = tf.random.stateless_uniform((self.patches,), keys[1])
        steps = tf.random.stateless_uniform((self.patches,), keys[2], 1, self.patches, tf.int32)
        masked, other = SHARES[self.config.objective]
        source = tf.where(kind < masked + other, (places + steps) % self.patches, places)
        source = tf.where(kind < masked, self.patches, source)
        return {"source": tf.where(corrupted, source, places), "corrupted": corrupted}

    def batch(self, images, drawn, weights=None):
        """((images, source), targets, weights) of images `(B, H, W, C)` and what was drawn.

        Weights are of predictions: 0 where a patch is not corrupted, and of the others such that
        all are 1 on average, as Keras divides by their number; times the images' own `(B,)`.
        """
        found = tf.cast(drawn["corrupted"], tf.float32) * (self.patches / self.corrupted)
        found = found if weights is None else found * weights[:, None]
        targets = self.targets(images)
        if self.config.predicts_colours:
            found = tf.repeat(found, targets.shape[1] // self.patches, axis=1)
        return (images, drawn["source"]), targets, found

    def targets(self, images: tf.Tensor) -> tf.Tensor:
        """What is to be predicted of all patches of the model's images `(B, H, W, C)`.

        Colours as classes `(B, N·P)` int32, the first channel's level first, as the digits of a
        number to base 2 ** bits; or pixels `(B, N, p²·C)`, row by row, as the model gets them.
        """
        if not self.config.predicts_colours:
            patches = self._parts(images, self.grid)  # (B, N, p²·C)
            if self.config.predicted == "patch":
                return patches
            count = patches.shape[-1]
            mean, variance = tf.nn.moments(patches, axes=[-1], keepdims=True)
            variance *= count / max(count - 1, 1)  # without bias, as torch's var
            return (patches - mean) / tf.sqrt(variance + VARIANCE_EPSILON)
        side = 4 if self.config.predicted == "colours_4x4" else 1
        rows, columns = self.grid
        means = self._means(images, (rows * side, columns * side))  # (B, rows·s, columns·s, C)
        levels = 2**self.config.bits
        digits = tf.clip_by_value(tf.cast(tf.floor(means * levels), tf.int32), 0, levels - 1)
        classes = 0
        for channel in range(images.shape[-1]):
            classes = classes * levels + digits[..., channel]
        classes = tf.reshape(classes, (-1, rows, side, columns, side))
        classes = tf.transpose(classes, (0, 1, 3, 2, 4))
        return tf.reshape(classes, (-1, self.patches * side * side))

    def _means(self, images, grid):
        """The mean pixel in [0, 1] of each cell of a grid (rows, columns)."""
        mean, std = (tf.constant(v) for v in (self.preprocessing.mean, self.preprocessing.std))
        parts = self._parts(images * std + mean, grid)
        parts = tf.reshape(
            parts, (-1, *grid, parts.shape[-1] // images.shape[-1], images.shape[-1])
        )
        return tf.reduce_mean(parts, axis=3)

    def _parts(self, images, grid):
        """Images cut into the cells of a grid, `(B, rows·columns, pixels·C)`."""
        (rows, columns), (_, height, width, channels) = grid, images.shape
        cell = height // rows, width // columns
        x = tf.reshape(images, (-1, rows, cell[0], columns, cell[1], channels))
        x = tf.transpose(x, (0, 1, 3, 2, 4, 5))
        return tf.reshape(x, (-1, rows * columns, cell[0] * cell[1] * channels))
