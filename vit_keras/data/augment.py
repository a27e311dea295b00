"""Random augmentations of training images, as functions of a random generator."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from vit_keras.data import randaugment
from vit_keras.data.boxes import boxes_in, object_window
from vit_keras.data.cropping import (
    as_array,
    as_input,
    as_picture,
    bit_crop,
    central_window,
    fit,
    mirror,
    place,
    random_window,
    seen_part,
    shares,
    sides_of,
    to_uint8,
)
from vit_keras.support import extras

MIRRORED = (0.0, 1.0, 1.0, -1.0)  # the part of a picture that is its mirror image


def turns(config) -> bool:
    """Whether an `AugmentConfig` rotates, scales, or shifts."""
    return bool(config.rotation_degrees or config.scale or config.shift)


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


def warp(pixels: np.ndarray, map: np.ndarray) -> np.ndarray:
    """Applies a map of `draw_map` to an image `(H, W, C)` float32; edges are repeated."""
    planes = np.ascontiguousarray(np.moveaxis(pixels, -1, 0))
    return np.stack([_transform(plane, map, order=1) for plane in planes], axis=-1)


def warp_mask(mask: np.ndarray, map: np.ndarray) -> np.ndarray:
    """Applies a map of `draw_map` to a mask `(H, W)`, without interpolation."""
    return _transform(mask, map, order=0)


def _transform(plane, map, order):
    ndimage = extras.require("scipy.ndimage", extra="data", purpose="Turning and scaling images")
    return ndimage.affine_transform(plane, map[:, :2], map[:, 2], order=order, mode="nearest")


AREA = (0.02, 1 / 3)
RATIO = 0.3  # the lowest ratio of the sides; its logarithm is uniform up to the inverse
ATTEMPTS = 10  # to draw a box that fits into the image


def erase(image: np.ndarray, rng: np.random.Generator, share: float) -> np.ndarray:
    """Replaces a random box with normal noise in a `share` of the images.

    Args:
        image: `(H, W, C)` float32, as the model takes it; changed in place.
        rng: Draws whether to erase, where, and the noise.
        share: The share of the images, 0 to 1.

    Returns:
        `image`.
    """
    if share and rng.random() < share:
        top, left, height, width = box(rng, image.shape[:2])
        part = image[top : top + height, left : left + width]
        part[...] = rng.standard_normal(part.shape, "float32")
    return image


def box(rng: np.random.Generator, size: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Draws the box to erase: the first of ten that fits, or an empty one.

    Args:
        rng: Draws the box.
        size: The image's height and width.

    Returns:
        Top, left, height, and width.
    """
    for _ in range(ATTEMPTS):
        area = rng.uniform(*AREA) * size[0] * size[1]
        ratio = math.exp(rng.uniform(math.log(RATIO), -math.log(RATIO)))
        height, width = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if height < size[0] and width < size[1]:
            top, left = rng.integers(0, (size[0] - height + 1, size[1] - width + 1))
            return int(top), int(left), height, width
    return 0, 0, 0, 0


def mixes(config) -> bool:
    """Whether an `AugmentConfig` mixes images."""
    return bool(config.mixup_alpha or config.cutmix_alpha)


def check_pairs(config, batch: int, processes: int) -> None:
    """Raises ValueError if a process's part of a batch would split a mixed pair."""
    if mixes(config) and batch // processes % 2:
        raise ValueError(
            "MixUp and CutMix mix pairs of neighbors, so a process's part of a batch must be even. "
            f"Received: batch={batch} over {processes} processes"
        )


class Mixing:
    """Mixes images and labels as an `AugmentConfig` specifies.

    Args:
        size: Height and width of the images in pixels.
        config: An `AugmentConfig`.
    """

    def __init__(self, size, config):
        self.size, self.config = size, config

    def __call__(
        self, images: np.ndarray, targets: np.ndarray, generators: Iterable[np.random.Generator]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mixes neighbors.

        Args:
            images: `(B, H, W, C)` float32 with an even B; changed in place.
            targets: One-hot labels, `(B, K)` float32.
            generators: One for each pair.

        Returns:
            The mixed images and labels.
        """
        drawn = [self.draw(rng) for rng in generators]
        for first, second, (weight, box) in zip(images[::2], images[1::2], drawn, strict=True):
            _mix(first, second, weight, box)
        weights, boxes = (np.repeat(np.stack(part), 2, axis=0) for part in zip(*drawn))
        top, left, bottom, right = boxes.T[:, :, None]  # (B, 1)
        cut = np.float32((bottom - top) * (right - left) / (self.size[0] * self.size[1]))
        for kept in (weights[:, None], 1 - cut):
            others = targets.reshape(-1, 2, targets.shape[-1])[:, ::-1].reshape(targets.shape)
            targets = kept * targets + (1 - kept) * others
        return images, targets

    def draw(self, rng: np.random.Generator) -> tuple[np.float32, np.ndarray]:
        """Draws how a pair of neighbors is mixed.

        MixUp's weights are Beta(alpha, alpha). If both methods are active, a coin chooses one, and
        the other does nothing: it has weight 1, or a box without pixels.

        Returns:
            MixUp's weight, and CutMix's box: top, left, bottom, and right, `(4,)` integers.
        """
        mixup, cutmix = self.config.mixup_alpha, self.config.cutmix_alpha
        if mixup and not (cutmix and rng.random() < 0.5):
            return np.float32(rng.beta(mixup, mixup)), np.zeros(4, int)
        return np.float32(1), _box(rng, 1 - rng.beta(cutmix, cutmix), np.array(self.size))


def _mix(first, second, weight, box):
    """Mixes a pair of images `(H, W, C)` in place."""
    if weight != 1:
        mixed = weight * first + (1 - weight) * second
        second[...] = weight * second + (1 - weight) * first
        first[...] = mixed
    top, left, bottom, right = box
    inside = slice(top, bottom), slice(left, right)
    cut = first[inside].copy()
    first[inside] = second[inside]
    second[inside] = cut


def _box(rng, area, size):
    """Draws a box around a random pixel; the box has the share `area` before it is clipped."""
    half = np.floor(size * np.sqrt(area)) / 2
    center = np.floor(rng.random(2) * size)
    corners = np.floor([center - half, center + half])
    return np.clip(corners, 0, size).astype(int).reshape(4)


class Augmentation:
    """Augments each example of a batch, then the batch, as an `AugmentConfig` specifies.

    Every random number comes from the generator of an example or of its pair, so an example is
    augmented to the same bits in any batch.

    Args:
        config: An `AugmentConfig`.
        image_size: Height and width in pixels.
        preprocessing: The model's `Preprocessing`.
    """

    def __init__(self, config, image_size, preprocessing):
        self.config, self.size, self.preprocessing = config, tuple(image_size), preprocessing
        self.policies = randaugment.chosen(config)
        self.layer = None
        if config.randaugment_layers and config.library != "pillow":
            told = config.randaugment_layers, config.randaugment_magnitude
            self.layer = randaugment.keras_cv(*told)
        self.mixing = Mixing(self.size, config) if mixes(config) else None

    def example(self, picture, label, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Augments one example.

        Args:
            picture: A picture of `cropping`.
            label: Its label; a mask, `(H, W)` uint8, and boxes, `(M, 6)` float32, change with the
                picture.
            rng: The example's generator.

        Returns:
            The model's input, `(H, W, C)` float32, and the label.

        Raises:
            ValueError: If RandAugment, another policy, or a change of colors receives an image
                without 3 channels.
        """
        config, is_mask = self.config, is_a_mask(label)
        scaled, window = self._window(sides_of(picture), label, rng)
        picture = place(picture, scaled, window, self.size, self.preprocessing)
        windows, mask = [shares(window, scaled)], None
        if is_mask:
            mask, whole = as_picture(label[..., None]), nearest(self.preprocessing)
            mask = place(mask, scaled, window, self.size, whole)
        if config.flip and rng.random() < 0.5:
            picture, mask = mirror(picture), mirror(mask) if is_mask else None
            windows.append(MIRRORED)
        picture = self._change(picture, rng)
        if turns(config):
            drawn = draw_map(rng, self.size, config)
            picture = warp(as_array(picture).astype("float32"), drawn)
            mask = warp_mask(np.asarray(mask), drawn) if is_mask else None
            windows.append(window_of(drawn, self.size))
        image = erase(as_input(picture, self.preprocessing), rng, config.erasing)
        if is_mask:
            return image, np.asarray(mask)
        return image, boxes_in(label, *windows) if are_boxes(label) else label

    def batch(self, images, targets, generators: Sequence[np.random.Generator]):
        """Mixes images `(B, H, W, C)` and targets `(B, K)`, given a generator for each pair."""
        return self.mixing(images, targets, generators) if self.mixing else (images, targets)

    def _window(self, sides, label, rng):
        """Draws the sides to scale a picture to, and the part of the result to keep."""
        if self.config.crop == "inception":
            return sides, random_window(sides, rng)
        if self.config.crop == "objects":
            return sides, object_window(sides, label, rng)
        if self.config.crop == "bit":
            return bit_crop(sides, self.size, rng)
        return central_window(sides, self.size, self.preprocessing)

    def _change(self, picture, rng):
        """Changes colors and shapes by policies, which need RGB with whole levels."""
        if not self.policies and self.layer is None:
            return picture
        pixels = as_array(picture)
        if pixels.shape[-1] != 3 or self.preprocessing.levels != 255:
            raise ValueError(
                "RandAugment, `augment.policy`, and `augment.color_jitter` need 3 channels of 8 "
                f"bits. Received: {pixels.shape[-1]} of {self.preprocessing.levels:g} levels. "
                "Leave them out, or set model.channels to 3 and data.levels to 255"
            )
        if self.layer is not None:
            picture = self.layer(pixels.astype("float32"), rng)
        if self.policies:
            if isinstance(picture, np.ndarray):
                picture = as_picture(to_uint8(picture))
            picture = randaugment.apply(self.policies, picture, rng)
        return picture


def window_of(map, size):
    """Returns the part of a picture that an unrotated map shows, as fractions of its sides."""
    scale = np.diag(map)
    corner = (map[:, 2] + (1 - scale) / 2) / size
    return *corner.tolist(), *scale.tolist()


def is_a_mask(label) -> bool:
    """Whether a label is a mask `(H, W)` uint8."""
    return np.ndim(label) == 2 and label.dtype == np.uint8


def are_boxes(label) -> bool:
    """Whether a label is the boxes `(M, 6)` float32 of a picture."""
    return np.ndim(label) == 2 and label.dtype == np.float32


def nearest(preprocessing):
    """The preprocessing of a mask: each pixel takes the nearest pixel's class."""
    return dataclasses.replace(preprocessing, interpolation="nearest", antialias=False)


def resized_label(label, sides, image_size, preprocessing):
    """Changes a mask or boxes as `preprocessing` resizes a picture; keeps other labels."""
    if are_boxes(label):
        return boxes_in(label, seen_part(sides, image_size, preprocessing))
    if not is_a_mask(label):
        return label
    return np.asarray(fit(as_picture(label[..., None]), image_size, nearest(preprocessing)))
