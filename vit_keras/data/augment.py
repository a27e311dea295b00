"""Random changes of training images, as functions of a random generator."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from vit_keras.data import affine, mixing, policies
from vit_keras.data.erasing import erase
from vit_keras.data.randaugment import randaugment
from vit_keras.data.transforms import (
    as_array,
    as_picture,
    bit_crop,
    cut,
    fit,
    mirror,
    normalize_into,
    random_window,
    sides_of,
    squeeze,
    to_uint8,
)


class Augmentation:
    """Changes each example of a batch, and then the batch, as an `AugmentConfig` says.

    Every random number comes from the generator of an example or of its pair, so an example changes
    to the same bits in any batch.

    Args:
        config: An `AugmentConfig`.
        image_size: Height and width in pixels.
        preprocessing: The model's `Preprocessing`.
    """

    def __init__(self, config, image_size, preprocessing):
        self.config, self.size, self.preprocessing = config, tuple(image_size), preprocessing
        self.policies = policies.chosen(config)
        self.layer = None
        if config.randaugment_layers and config.library != "pillow":
            layers, magnitude = config.randaugment_layers, config.randaugment_magnitude
            self.layer = randaugment(config.library, layers, magnitude)
        self.mixing = mixing.Mixing(self.size, config) if mixing.is_active(config) else None

    def example(self, picture, label, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Changes one example.

        Args:
            picture: A picture of `transforms`.
            label: Its label; a mask, `(H, W)` uint8, is changed as the picture is.
            rng: The example's generator.

        Returns:
            The image's pixels, `(H, W, C)`, and the label; `finish` makes the model's input.

        Raises:
            ValueError: If RandAugment, another policy, or a change of colors meets an image without
                3 channels.
        """
        config, is_mask = self.config, is_a_mask(label)
        resized = self._resize(sides_of(picture), rng)
        picture = resized(picture, self.preprocessing)
        mask = (
            resized(as_picture(label[..., None]), nearest(self.preprocessing)) if is_mask else None
        )
        if config.flip and rng.random() < 0.5:
            picture, mask = mirror(picture), mirror(mask) if is_mask else None
        pixels = as_array(self._change(picture, rng))
        if affine.is_active(config):
            drawn = affine.draw(rng, self.size, config)
            pixels = affine.warp(pixels.astype("float32"), drawn)
            mask = affine.warp_mask(np.asarray(mask), drawn) if is_mask else None
        return pixels, np.asarray(mask) if is_mask else label

    def finish(self, image: np.ndarray, pixels: np.ndarray, rng: np.random.Generator) -> None:
        """Writes the model's input into `image`, `(H, W, C)` float32, from what `example` made."""
        normalize_into(image, pixels, self.preprocessing)
        if self.config.erasing:
            erase(image, rng, self.config.erasing)

    def batch(self, images, targets, generators: Sequence[np.random.Generator]):
        """Mixes images `(B, H, W, C)` and targets `(B, K)`, given a generator for each pair."""
        return self.mixing(images, targets, generators) if self.mixing else (images, targets)

    def _resize(self, sides, rng):
        """Draws preprocessing a picture of some sides, and its mask, come to the model's size."""
        if self.config.crop == "inception":
            window = random_window(sides, rng)
            return lambda picture, preprocessing: squeeze(
                cut(picture, window), self.size, preprocessing
            )
        if self.config.crop == "bit":
            resized, window = bit_crop(sides, self.size, rng)
            return lambda picture, preprocessing: cut(
                squeeze(picture, resized, preprocessing), window
            )
        return lambda picture, preprocessing: fit(picture, self.size, preprocessing)

    def _change(self, picture, rng):
        """Changes colors and shapes by policies, which are made for whole levels of RGB."""
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
            picture = policies.apply(self.policies, picture, rng)
        return picture


def is_a_mask(label) -> bool:
    """Whether a label is a mask `(H, W)`, rather than a class or labels `(K,)`."""
    return np.ndim(label) == 2


def nearest(preprocessing):
    """The preprocessing of a mask: each pixel takes the nearest pixel's class."""
    return dataclasses.replace(preprocessing, interpolation="nearest", antialias=False)


def resized_label(label, image_size, preprocessing):
    """A mask `(H, W)` at another size, as `preprocessing` resizes its picture; others as is."""
    if not is_a_mask(label):
        return label
    return np.asarray(fit(as_picture(label[..., None]), image_size, nearest(preprocessing)))
