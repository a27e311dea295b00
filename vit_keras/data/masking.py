"""Chooses the patches that a pretext task corrupts, and computes what a model predicts of them."""

import numpy as np

from vit_keras.config import PretextConfig
from vit_keras.models import Preprocessing

# Shares of the corrupted patches that become the mask and another patch; the rest stays (BERT).
SHARES = {"masked_patch": (0.8, 0.1), "mae": (1.0, 0.0)}
VARIANCE_EPSILON = 1e-6  # as in MAE


class Masking:
    """Makes the inputs and targets of a pretext task from images.

    What is drawn for an image follows from its generator alone, so it is the same in any batch.

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

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draws the corruption of one image; exactly `config.corrupted(N)` patches are corrupted.

        Returns:
            `source`, `(N,)` int32, as `layers.masking` takes it, and `corrupted`, `(N,)` bool.
        """
        places = np.arange(self.patches, dtype="int32")
        corrupted = rng.permutation(self.patches) < self.corrupted
        kind, steps = rng.random(self.patches), rng.integers(1, self.patches, self.patches, "int32")
        masked, other = SHARES[self.config.objective]
        source = np.where(kind < masked + other, (places + steps) % self.patches, places)
        source[kind < masked] = self.patches
        return {"source": np.where(corrupted, source, places), "corrupted": corrupted}

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
        loss_weights = drawn["corrupted"] * np.float32(self.patches / self.corrupted)
        if weights is not None:
            loss_weights *= weights[:, None]
        targets = self.targets(images)
        if self.config.predicts_colours:
            loss_weights = np.repeat(loss_weights, targets.shape[1] // self.patches, axis=1)
        return (images, drawn["source"]), targets, loss_weights

    def targets(self, images: np.ndarray) -> np.ndarray:
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
            unbiased = min(patches.shape[-1] - 1, 1)  # as in torch.var
            variance = patches.var(axis=-1, keepdims=True, ddof=unbiased)
            mean = patches.mean(axis=-1, keepdims=True)
            return (patches - mean) / np.sqrt(variance + np.float32(VARIANCE_EPSILON))
        side = 4 if self.config.predicted == "colours_4x4" else 1
        rows, columns = self.grid
        means = self._means(images, (rows * side, columns * side))  # (B, rows·s, columns·s, C)
        levels = 2**self.config.bits
        digits = np.clip(np.floor(means * levels), 0, levels - 1).astype("int32")
        powers = levels ** np.arange(images.shape[-1], dtype="int32")[::-1]
        classes = (digits @ powers).reshape(-1, rows, side, columns, side)
        return classes.swapaxes(2, 3).reshape(-1, self.patches * side * side)

    def _means(self, images, grid):
        """Computes the mean pixel in [0, 1] of each cell of a grid (rows, columns)."""
        mean, std = (
            np.array(v, "float32") for v in (self.preprocessing.mean, self.preprocessing.std)
        )
        (rows, columns), (batch, height, width, channels) = grid, images.shape
        x = images.reshape(batch, rows, height // rows, width * channels).mean(axis=2)
        x = x.reshape(batch, rows, columns, width // columns, channels).mean(axis=3)
        return x * std + mean

    def _cells(self, images, grid):
        """Cuts images into the cells of a grid, `(B, rows·columns, pixels·C)`."""
        (rows, columns), (_, height, width, channels) = grid, images.shape
        cell = height // rows, width // columns
        x = images.reshape(-1, rows, cell[0], columns, cell[1], channels).swapaxes(2, 3)
        return x.reshape(-1, rows * columns, cell[0] * cell[1] * channels)
