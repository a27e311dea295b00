"""Inputs and targets of the pretext tasks: masked patches, and views for DINO."""

import dataclasses

import numpy as np

from vit_keras.config import DinoConfig, PretextConfig
from vit_keras.data.cropping import as_array, cut, mirror, random_window, sides_of, squeeze
from vit_keras.data.depth import pillow
from vit_keras.data.randaugment import OPERATIONS, apply, color_jitter
from vit_keras.models import Preprocessing

# Shares of corrupted patches that become the mask or another patch; the rest stays (BERT).
SHARES = {"masked_patch": (0.8, 0.1), "mae": (1.0, 0.0)}
VARIANCE_EPSILON = 1e-6  # as in MAE


class Masking:
    """Makes the inputs and targets of a pretext task from images.

    The draws for an image depend only on its generator, so they are the same in any batch.

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
            `source`, `(N,)` int32, for `layers.tokens`, and `corrupted`, `(N,)` bool.
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

        Each prediction has a weight: 0 for intact patches, and one value for all others. Weights
        are 1 on average, since Keras divides by their number.

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
        if self.config.predicts_colors:
            loss_weights = np.repeat(loss_weights, targets.shape[1] // self.patches, axis=1)
        return (images, drawn["source"]), targets, loss_weights

    def targets(self, images: np.ndarray) -> np.ndarray:
        """Computes the targets of all patches of the model's images `(B, H, W, C)`.

        Returns:
            Colors as classes, `(B, N·P)` int32: the channels' levels are the digits of a number in
            base 2 ** bits, the first channel first. For targets of pixels, the pixels of each patch
            row by row, `(B, N, p²·C)`, normalized if configured.
        """
        if not self.config.predicts_colors:
            patches = self._cells(images, self.grid)  # (B, N, p²·C)
            if self.config.predicted == "patch":
                return patches
            unbiased = min(patches.shape[-1] - 1, 1)  # as in torch.var
            variance = patches.var(axis=-1, keepdims=True, ddof=unbiased)
            mean = patches.mean(axis=-1, keepdims=True)
            return (patches - mean) / np.sqrt(variance + np.float32(VARIANCE_EPSILON))
        side = 4 if self.config.predicted == "colors_4x4" else 1
        rows, columns = self.grid
        channels, levels = images.shape[-1], 2**self.config.bits
        cells = self._cells(images, (rows * side, columns * side))  # (B, N·s², pixels·C)
        means = cells.reshape(*cells.shape[:2], -1, channels).mean(axis=2)
        scaling = self.preprocessing
        mean, std = (np.array(x, "float32") for x in (scaling.mean, scaling.std))
        digits = np.clip(np.floor((means * std + mean) * levels), 0, levels - 1).astype("int32")
        powers = levels ** np.arange(channels, dtype="int32")[::-1]
        classes = (digits @ powers).reshape(-1, rows, side, columns, side)
        return classes.swapaxes(2, 3).reshape(-1, self.patches * side * side)

    def _cells(self, images, grid):
        """Cuts images into the cells of a grid, `(B, rows·columns, pixels·C)`."""
        (rows, columns), (_, height, width, channels) = grid, images.shape
        cell = height // rows, width // columns
        x = images.reshape(-1, rows, cell[0], columns, cell[1], channels).swapaxes(2, 3)
        return x.reshape(-1, rows * columns, cell[0] * cell[1] * channels)


JITTER = {"brightness": 0.4, "contrast": 0.4, "color": 0.2, "hue": 0.1}  # in DINO
JITTERED = 0.8  # share of the pictures
LEAST_SIGMA = 0.1  # pixels
THRESHOLD = 128  # solarize inverts pixels from here on


def jitter(picture, rng: np.random.Generator, strength: float):
    """Changes colors by `color_jitter` with `strength` times the numbers in `JITTER`.

    A picture with one channel has no saturation and no hue.
    """
    names = JITTER if picture.mode == "RGB" else ("brightness", "contrast")
    return apply([color_jitter({name: strength * JITTER[name] for name in names})], picture, rng)


def grayscale(picture, rng, amount):
    """Removes the colors of a picture; all channels become the luma."""
    return picture.convert("L").convert(picture.mode)


def blur(picture, rng: np.random.Generator, largest: float):
    """Blurs a picture with a Gaussian of sigma 0.1 to `largest` pixels; edges are repeated.

    Pillow approximates the Gaussian with three box filters.
    """
    sigma = rng.uniform(min(LEAST_SIGMA, largest), largest)
    return picture.filter(pillow("ImageFilter").GaussianBlur(sigma))


def solarize(picture, rng, threshold):
    """Inverts the pixels at or above a threshold."""
    return OPERATIONS["solarize"](picture, threshold)


# Shares of views to blur: the first and the second global one, and the local ones.
BLURRED = (1.0, 0.1, 0.5)


class Views:
    """Makes two global views and several small local views of each image.

    A view is a random part of the image, resized by antialiased bicubic interpolation and, with
    `flip`, mirrored half of the time. It is then color-jittered, turned gray, blurred, and
    solarized, each with its own probability. All of this depends only on the generator of the
    image.

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
        self._resizing = dataclasses.replace(
            preprocessing, interpolation="bicubic", antialias=True, rounding="torchvision"
        )
        self.size, self.local_size = tuple(image_size), (config.local_size,) * 2

    def draw(self, picture, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws the views of an image.

        Args:
            picture: The whole image: a `PIL.Image` in RGB or L, or an array `(H, W, C)`, whose
                colors cannot be changed.
            rng: Draws the views.

        Returns:
            The global views `(2, H', W', C)` and the local ones `(n, h, w, C)`, float32 in the
            model's range.

        Raises:
            ValueError: If the colors of an array are to be changed.
        """
        config = self.config
        changes = config.color_jitter, config.grayscale, config.blur_sigma, config.solarize
        if isinstance(picture, np.ndarray) and any(changes):
            raise ValueError(
                "Only the colors of 8-bit images with 1 or 3 channels can be changed. Received: "
                f"{picture.dtype} with {picture.shape[-1]} channels. Set color_jitter, grayscale, "
                "blur_sigma, and solarize of pretext.dino to 0"
            )
        whole = [
            self._view(picture, rng, self.size, config.global_scale, blurred, solarized)
            for blurred, solarized in zip(BLURRED, (0.0, config.solarize))
        ]
        local = [
            self._view(picture, rng, self.local_size, config.local_scale, BLURRED[-1], 0.0)
            for _ in range(config.local_crops)
        ]
        return np.stack(whole), np.stack(local)

    def batch(self, views, weights=None):
        """Makes a batch for `fit`: (views, targets, weights) with zeros `(B, 2)` as targets."""
        targets = np.zeros((len(views[0]), 2), "float32")
        return (views, targets) if weights is None else (views, targets, weights)

    def _view(self, picture, rng, size, scale, blurred, solarized):
        config = self.config
        window = random_window(sides_of(picture), rng, scale)
        view = squeeze(cut(picture, window), size, self._resizing)
        if self.flip and rng.random() < 0.5:
            view = mirror(view)
        for change, share, amount in (
            (jitter, JITTERED, config.color_jitter),
            (grayscale, config.grayscale, 1.0),
            (blur, blurred, config.blur_sigma),
            (solarize, solarized, THRESHOLD),
        ):
            if share and amount and rng.random() < share:
                view = change(view, rng, amount)
        return self.preprocessing.normalize(as_array(view).astype("float32"))
