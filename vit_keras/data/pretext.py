"""Inputs and targets of the pretext tasks: masked patches, and views for DINO."""

import dataclasses
import functools
import math

import numpy as np

from vit_keras.config import DinoConfig, PretextConfig
from vit_keras.data.cropping import as_array, cut, mirror, random_window, sides_of, squeeze
from vit_keras.data.randaugment import Policy, apply, color_jitter
from vit_keras.models import Preprocessing

# Shares of corrupted patches that become the mask or another patch; the rest stays (BERT).
SHARES = {"masked_patch": (0.8, 0.1), "mae": (1.0, 0.0)}
VARIANCE_EPSILON = 1e-6  # as in MAE


@dataclasses.dataclass
class Masking:
    """Makes the inputs and targets of a pretext task from images.

    The draws for an image depend only on its generator, so they are the same in any batch.

    Args:
        config: The task.
        image_size: Height and width in pixels.
        patch_size: Height and width of a patch in pixels.
        preprocessing: The model's preprocessing.
    """

    config: PretextConfig
    image_size: tuple[int, int]
    patch_size: tuple[int, int]
    preprocessing: Preprocessing

    def __post_init__(self):
        self.grid = tuple(size // patch for size, patch in zip(self.image_size, self.patch_size))
        self.patches = math.prod(self.grid)
        self.corrupted = self.config.corrupted(self.patches)

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

        Each prediction has a weight: 0 for intact patches, and the same value for all others.
        Weights are 1 on average, since Keras divides by their number.

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
            patches = self._cells(images).reshape(len(images), self.patches, -1)  # (B, N, p²·C)
            if self.config.predicted == "patch":
                return patches
            unbiased = min(patches.shape[-1] - 1, 1)  # as in torch.var
            variance = patches.var(axis=-1, keepdims=True, ddof=unbiased)
            mean = patches.mean(axis=-1, keepdims=True)
            return (patches - mean) / np.sqrt(variance + np.float32(VARIANCE_EPSILON))
        means = self._cells(images, 4 if self.config.predicted == "colors_4x4" else 1).mean(axis=3)
        scaling, levels = self.preprocessing, 2**self.config.bits
        mean, std = (np.array(x, "float32") for x in (scaling.mean, scaling.std))
        digits = np.clip(np.floor((means * std + mean) * levels), 0, levels - 1).astype("int32")
        powers = levels ** np.arange(images.shape[-1], dtype="int32")[::-1]
        return (digits @ powers).reshape(len(images), -1)

    def _cells(self, images, side=1):
        """Cuts each patch into `side` by `side` cells: `(B, N, side², pixels, C)`."""
        (rows, columns), (_, height, width, channels) = self.grid, images.shape
        high, wide = height // (rows * side), width // (columns * side)
        x = images.reshape(-1, rows, side, high, columns, side, wide, channels)
        x = x.transpose(0, 1, 4, 2, 5, 3, 6, 7)
        return x.reshape(-1, self.patches, side * side, high * wide, channels)


JITTER = {"brightness": 0.4, "contrast": 0.4, "color": 0.2, "hue": 0.1}  # in DINO
JITTERED = 0.8  # share of the pictures
BLURRED = (1.0, 0.1, 0.5)  # shares of the first and the second global views, and of local ones
LEAST_SIGMA = 0.1  # pixels
THRESHOLD = 128  # solarize inverts pixels from here on


def colors(config: DinoConfig, mode: str, blurred: float, solarized: float) -> Policy:
    """Returns DINO's changes of a view's colors: jitter, gray, blur, and solarization.

    The jitter is `color_jitter` with `config.color_jitter` times the numbers in `JITTER`. The blur
    is a Gaussian of sigma 0.1 to `config.blur_sigma` pixels, which Pillow approximates with three
    box filters.

    Args:
        config: The strength of the changes.
        mode: Pillow's mode of the pictures; pictures in "L" have no saturation and no hue.
        blurred: The share of views to blur.
        solarized: The share of views to solarize.
    """
    names = JITTER if mode == "RGB" else ("brightness", "contrast")
    jitter = color_jitter({name: config.color_jitter * JITTER[name] for name in names})

    def steps(rng, size):
        if config.color_jitter and rng.random() < JITTERED:
            yield from jitter(rng, size)
        if config.grayscale and rng.random() < config.grayscale:
            yield ("gray",)
        if config.blur_sigma and rng.random() < blurred:
            least = min(LEAST_SIGMA, config.blur_sigma)
            yield "blur", rng.uniform(least, config.blur_sigma)
        if solarized and rng.random() < solarized:
            yield "solarize", THRESHOLD

    return steps


@dataclasses.dataclass
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

    config: DinoConfig
    image_size: tuple[int, int]
    preprocessing: Preprocessing
    flip: bool = False

    def __post_init__(self):
        self._bicubic = dataclasses.replace(
            self.preprocessing, interpolation="bicubic", antialias=True, rounding="torchvision"
        )

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
        view = functools.partial(self._view, picture, rng)
        shares = zip(BLURRED, (0.0, config.solarize))
        whole = [view(self.image_size, config.global_scale, *of_view) for of_view in shares]
        small = (config.local_size,) * 2, config.local_scale, BLURRED[-1], 0.0
        return np.stack(whole), np.stack([view(*small) for _ in range(config.local_crops)])

    def _view(self, picture, rng, size, scale, blurred, solarized):
        part = cut(picture, random_window(sides_of(picture), rng, scale))
        view = squeeze(part, size, self._bicubic)
        if self.flip and rng.random() < 0.5:
            view = mirror(view)
        if not isinstance(view, np.ndarray):
            view = apply(colors(self.config, view.mode, blurred, solarized), view, rng)
        return self.preprocessing.normalize(as_array(view).astype("float32"))
