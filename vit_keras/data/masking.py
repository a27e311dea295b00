"""Chooses the patches that a pretext task corrupts, and computes what a model predicts of them."""

import tensorflow as tf

from vit_keras.config import PretextConfig
from vit_keras.models import Preprocessing

# Shares of the corrupted patches that become the mask and another patch; the rest stays (BERT).
SHARES = {"masked_patch": (0.8, 0.1), "mae": (1.0, 0.0)}
VARIANCE_EPSILON = 1e-6  # as in MAE


class Masking:
    """Makes the inputs and targets of a pretext task from images.

    What is drawn for an image follows from its key alone, so it is the same in any batch.

    Args:
        config: The task.
        image_size: Height and width in pixels.
        patch_size: Height and width of a patch in pixels.
        preprocessing: The model's preprocessing.
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
        """Draws the corruption of one image; exactly `config.corrupted(N)` patches are corrupted.

        Args:
            key: Two integers.

        Returns:
            `source`, `(N,)` int32, as `layers.masking` takes it, and `corrupted`, `(N,)` bool.
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
        """Makes a batch for `fit`.

        Each prediction has a weight: 0 for a patch that is not corrupted, and the same for all
        others, so that weights are 1 on average, since Keras divides by their number.

        Args:
            images: `(B, H, W, C)`.
            drawn: What `draw` returned, for the batch.
            weights: Weights of the images, `(B,)`, which multiply the weights of their patches.

        Returns:
            ((images, source), targets, weights).
        """
        loss_weights = tf.cast(drawn["corrupted"], tf.float32) * (self.patches / self.corrupted)
        if weights is not None:
            loss_weights *= weights[:, None]
        targets = self.targets(images)
        if self.config.predicts_colours:
            per_patch = targets.shape[1] // self.patches
            loss_weights = tf.repeat(loss_weights, per_patch, axis=1)
        return (images, drawn["source"]), targets, loss_weights

    def targets(self, images: tf.Tensor) -> tf.Tensor:
        """Computes the targets of all patches of the model's images `(B, H, W, C)`.

        Returns:
            Colors as classes, `(B, N·P)` int32: the channels' levels are the digits of a number to
            base 2 ** bits, the first channel first. Or pixels, `(B, N, p²·C)`, row by row, as the
            model gets them.
        """
        if not self.config.predicts_colours:
            patches = self._cells(images, self.grid)  # (B, N, p²·C)
            if self.config.predicted == "patch":
                return patches
            count = patches.shape[-1]
            mean, variance = tf.nn.moments(patches, axes=[-1], keepdims=True)
            variance *= count / max(count - 1, 1)  # unbiased, as in torch.var
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
        """Computes the mean pixel in [0, 1] of each cell of a grid (rows, columns)."""
        mean, std = (tf.constant(v) for v in (self.preprocessing.mean, self.preprocessing.std))
        cells, channels = self._cells(images * std + mean, grid), images.shape[-1]
        cells = tf.reshape(cells, (-1, *grid, cells.shape[-1] // channels, channels))
        return tf.reduce_mean(cells, axis=3)

    def _cells(self, images, grid):
        """Cuts images into the cells of a grid, `(B, rows·columns, pixels·C)`."""
        (rows, columns), (_, height, width, channels) = grid, images.shape
        cell = height // rows, width // columns
        x = tf.reshape(images, (-1, rows, cell[0], columns, cell[1], channels))
        x = tf.transpose(x, (0, 1, 3, 2, 4, 5))
        return tf.reshape(x, (-1, rows * columns, cell[0] * cell[1] * channels))
