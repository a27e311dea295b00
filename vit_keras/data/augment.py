"""Random augmentations of training images, as functions of a random generator."""

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from vit_keras.data import cropping, randaugment
from vit_keras.data.boxes import boxes_in, object_window
from vit_keras.data.depth import as_array, as_picture
from vit_keras.support import extras

MIRRORED = (0.0, 1.0, 1.0, -1.0)  # the part of a picture that is its mirror image


def draw_map(rng: np.random.Generator, size: tuple[int, int], config) -> np.ndarray:
    """Draws the affine map of one image.

    Args:
        rng: Draws the map.
        size: Height and width in pixels.
        config: An `AugmentConfig`.

    Returns:
        The map from output to input coordinates, `(2, 3)` float64: pixel (y, x) of the result is
        the image's pixel at `map @ (y, x, 1)`.
    """
    log_scale = math.log1p(config.scale)
    limits = (math.radians(config.rotation_degrees), log_scale, log_scale, *[config.shift] * 2)
    angle, *amounts = rng.uniform(-1, 1, 5) * limits
    scales, shifts = np.exp(amounts[:2]), amounts[2:] * np.array(size)
    cos, sin = math.cos(angle), math.sin(angle)
    turn = np.array([[cos, sin], [-sin, cos]]) * scales
    center = (np.array(size) - 1) / 2
    return np.column_stack([turn, center + shifts - turn @ center])


def warp(pixels: np.ndarray, turn: np.ndarray, order: int = 1) -> np.ndarray:
    """Applies a map from `draw_map` to an image or a mask `(H, W, C)`; edges are repeated.

    An `order` of 1 interpolates linearly, for images, in float32; 0 takes the nearest pixel, for
    masks.
    """
    ndimage = extras.require("scipy.ndimage")
    planes = np.ascontiguousarray(np.moveaxis(pixels, -1, 0), "float32" if order else None)
    told = {"order": order, "mode": "nearest"}
    changed = [ndimage.affine_transform(x, turn[:, :2], turn[:, 2], **told) for x in planes]
    return np.stack(changed, axis=-1)


AREA = (0.02, 1 / 3)
RATIO = 0.3  # the ratio of the sides is log-uniform from this to its inverse
ATTEMPTS = 10  # to draw a box that fits into the image


def erase(image: np.ndarray, rng: np.random.Generator, share: float) -> np.ndarray:
    """Replaces a random box with normal noise in a `share` of the images.

    Of ten random boxes, it replaces the first that fits into the image, or none if none fits.

    Args:
        image: `(H, W, C)` float32, as the model takes it; changed in place.
        rng: Draws whether to erase, where, and the noise.
        share: The share of the images, 0 to 1.

    Returns:
        `image`.
    """
    height, width, _ = image.shape
    if not share or rng.random() >= share:
        return image
    for _ in range(ATTEMPTS):
        area = rng.uniform(*AREA) * height * width
        ratio = math.exp(rng.uniform(math.log(RATIO), -math.log(RATIO)))
        rows, columns = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if rows < height and columns < width:
            top, left = rng.integers(0, (height - rows + 1, width - columns + 1))
            part = image[top : top + rows, left : left + columns]
            part[...] = rng.standard_normal(part.shape, "float32")
            break
    return image


def mixes(config) -> bool:
    """Whether an `AugmentConfig` mixes images."""
    return bool(config.mixup_alpha or config.cutmix_alpha)


def mix(
    batch: tuple[np.ndarray, np.ndarray], generators: Iterable[np.random.Generator], config
) -> tuple[np.ndarray, np.ndarray]:
    """Mixes neighboring images by MixUp or CutMix; if both are active, each pair draws one.

    Args:
        batch: Images `(B, H, W, C)` with an even B, and one-hot labels `(B, K)`, both float32;
            changed in place.
        generators: One for each pair.
        config: An `AugmentConfig`.

    Returns:
        The mixed images and labels.
    """
    pairs = (x.reshape(-1, 2, *x.shape[1:]) for x in batch)
    for image, target, rng in zip(*pairs, generators, strict=True):
        mixup, cutmix = config.mixup_alpha, config.cutmix_alpha
        if mixup and not (cutmix and rng.random() < 0.5):
            kept = np.float32(rng.beta(mixup, mixup))
            image[...] = kept * image + (1 - kept) * image[::-1]
        else:
            # Before it is clipped, the box covers a share of 1 - Beta.
            size = np.array(image.shape[1:3])
            half = np.floor(size * np.sqrt(1 - rng.beta(cutmix, cutmix))) / 2
            center = np.floor(rng.random(2) * size)
            corners = np.clip(np.floor([center - half, center + half]), 0, size)
            (top, left), (bottom, right) = corners.astype(int)
            inside = image[:, top:bottom, left:right]
            inside[...] = inside[::-1].copy()
            kept = 1 - np.float32(inside[0, ..., 0].size / image[0, ..., 0].size)
        target[...] = kept * target + (1 - kept) * target[::-1]
    return batch


class Augmentation:
    """Augments each example of a batch as an `AugmentConfig` specifies; `mix` mixes the batch.

    Every random number comes from the generator of an example, so an example is augmented to the
    same bits in any batch.

    Args:
        config: An `AugmentConfig`.
        image_size: Height and width in pixels.
        preprocessing: The model's `Preprocessing`.
    """

    def __init__(self, config, image_size, preprocessing):
        self.config, self.size, self.preprocessing = config, tuple(image_size), preprocessing
        self.changes = randaugment.chosen(config)
        # Each pixel of a mask takes the nearest pixel's class.
        self.of_mask = dataclasses.replace(preprocessing, interpolation="nearest", antialias=False)

    def example(self, picture, label, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Augments one example.

        Args:
            picture: A picture as `cropping` describes it.
            label: Its label; a mask, `(H, W)` uint8, and boxes, `(M, 6)` float32, change with the
                picture.
            rng: The example's generator.

        Returns:
            The image's pixels, `(H, W, C)`, and the label; `finish` makes the model's input.

        Raises:
            ValueError: If RandAugment, another policy, or a change of colors receives an image
                that does not have three 8-bit channels.
        """
        config = self.config
        kind = str(label.dtype) if np.ndim(label) == 2 else ""
        scaled, window = self._window(cropping.sides_of(picture), label, rng)
        windows, rows = [cropping.shares(window, scaled)], [(picture, self.preprocessing)]
        if kind == "uint8":  # a mask
            rows.append((as_picture(label[..., None]), self.of_mask))
        placed = [cropping.place(row, scaled, window, self.size, scaling) for row, scaling in rows]
        if config.flip and rng.random() < 0.5:
            placed = [*map(cropping.mirror, placed)]
            windows.append(MIRRORED)
        pixels, *masks = map(as_array, (self._change(placed[0], rng), *placed[1:]))
        if config.rotation_degrees or config.scale or config.shift:
            drawn = draw_map(rng, self.size, config)
            pixels, masks = warp(pixels, drawn), [warp(mask, drawn, order=0) for mask in masks]
            # What an unrotated map shows, as fractions of the sides.
            scale = np.diag(drawn)
            corner = (drawn[:, 2] + (1 - scale) / 2) / self.size
            windows.append((*corner.tolist(), *scale.tolist()))
        if masks:
            return pixels, masks[0][..., 0]
        return pixels, boxes_in(label, *windows) if kind == "float32" else label

    def finish(self, image: np.ndarray, pixels: np.ndarray, rng: np.random.Generator) -> None:
        """Turns the pixels of `example` into the model's input: `image`, `(H, W, C)` float32."""
        image[...] = self.preprocessing.normalize(pixels)
        erase(image, rng, self.config.erasing)

    def _window(self, sides, label, rng):
        """Draws the sides to scale a picture to, and the part of the result to keep."""
        if self.config.crop == "inception":
            return sides, cropping.random_window(sides, rng)
        if self.config.crop == "objects":
            return sides, object_window(sides, label, rng)
        if self.config.crop == "bit":
            return cropping.bit_crop(sides, self.size, rng)
        return cropping.central_window(sides, self.size, self.preprocessing)

    def _change(self, picture, rng):
        """Changes colors and shapes by policies, which need RGB with whole levels."""
        if not self.changes:
            return picture
        pixels = as_array(picture)
        if pixels.shape[-1] != 3 or self.preprocessing.levels != 255:
            raise ValueError(
                "RandAugment, augment.policy and augment.color_jitter need three 8-bit channels. "
                f"Received: {pixels.shape[-1]} channels with levels={self.preprocessing.levels:g}. "
                "Leave them out, or set model.channels to 3 and data.levels to 255"
            )
        for change in self.changes:
            picture = change(picture, rng)
        return picture
