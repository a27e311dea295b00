"""Random views of an image for self-distillation (multi-crop, arXiv 2104.14294, Section 3.1)."""

import dataclasses

import numpy as np

from vit_keras.config import DinoConfig
from vit_keras.data import colors
from vit_keras.data.transforms import as_array, cut, mirror, random_window, sides_of, squeeze
from vit_keras.models import Preprocessing

GLOBAL_VIEWS = 2
# Shares of the views that are blurred: the first and the second global one, and the local ones.
BLURRED = (1.0, 0.1, 0.5)


class Views:
    """Makes two global views and several small local views of each image.

    A view is a random part of the image, resized by antialiased bicubic interpolation and mirrored
    half of the time if `flip` says so. Its colors are then jittered, its saturation is taken, and
    it is blurred and solarized, each with a probability of its own. All of this follows from the
    generator of the image alone.

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
            picture: The whole image, as a `PIL.Image` in RGB or L, or as an array `(H, W, C)`,
                whose colors cannot be changed.
            rng: Draws the views.

        Returns:
            The global views `(2, H', W', C)` and the local ones `(n, h, w, C)`, float32, as the
            model takes them.

        Raises:
            ValueError: If the colors of an array are to be changed.
        """
        config = self.config
        changes = config.color_jitter, config.grayscale, config.blur_sigma, config.solarize
        if isinstance(picture, np.ndarray) and any(changes):
            raise ValueError(
                "Only images of 8 bits with 1 or 3 channels have colors to change. Received: "
                f"{picture.dtype} with {picture.shape[-1]} channels. Set color_jitter, grayscale, "
                "blur_sigma, and solarize of pretext.dino to 0"
            )
        whole = [
            self._view(picture, rng, self.size, config.global_scale, blurred, solarized)
            for blurred, solarized in zip(BLURRED[:GLOBAL_VIEWS], (0.0, config.solarize))
        ]
        local = [
            self._view(picture, rng, self.local_size, config.local_scale, BLURRED[-1], 0.0)
            for _ in range(config.local_crops)
        ]
        return np.stack(whole), np.stack(local)

    def batch(self, views, weights=None):
        """Makes a batch for `fit`: (views, targets, weights), whose targets are zeros `(B, 2)`."""
        targets = np.zeros((len(views[0]), 2), "float32")
        return (views, targets) if weights is None else (views, targets, weights)

    def _view(self, picture, rng, size, scale, blurred, solarized):
        config = self.config
        window = random_window(sides_of(picture), rng, scale)
        view = squeeze(cut(picture, window), size, self._resizing)
        if self.flip and rng.random() < 0.5:
            view = mirror(view)
        view = colors.jitter(view, rng, config.color_jitter)
        view = colors.grayscale(view, rng, config.grayscale)
        view = colors.blur(view, rng, blurred, config.blur_sigma)
        view = colors.solarize(view, rng, solarized)
        return self.preprocessing.normalize(as_array(view).astype("float32"))
