"""MixUp (arXiv 1710.09412) and CutMix (arXiv 1905.04899) of neighbors.

Example i is mixed with example i ^ 1. A pair's weight follows from the pair's generator alone, so a
batch stays the same if it is split into parts or spread over processes. NumPy mixes some rows of a
pair at a time, which stay in the processor's cache, and puts them in the old ones' place. The bits
equal Keras' layers'.
"""

from collections.abc import Iterable

import numpy as np

ROWS = 56  # of a pair that are mixed at once


def is_active(config) -> bool:
    """Whether an `AugmentConfig` mixes images."""
    return bool(config.mixup_alpha or config.cutmix_alpha)


def check_pairs(config, batch: int, processes: int) -> None:
    """Raises ValueError if a process's part of a batch would split a pair that is mixed."""
    if is_active(config) and batch // processes % 2:
        raise ValueError(
            "MixUp and CutMix mix pairs of neighbors, so a process's part of a batch must be even. "
            f"Received: batch={batch} over {processes} processes"
        )


class Mixing:
    """Mixes images and labels as an `AugmentConfig` says.

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
            images: `(B, H, W, C)` float32 with an even B, which are changed in place.
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
        for top in range(0, len(first), ROWS):
            _blend(first[top : top + ROWS], second[top : top + ROWS], weight)
    top, left, bottom, right = box
    inside = slice(top, bottom), slice(left, right)
    cut = first[inside].copy()
    first[inside] = second[inside]
    second[inside] = cut


def _blend(first, second, weight):
    """Makes `weight` of each image and the rest of the other one, in both."""
    rest = (1 - weight) * first
    first *= weight
    first += (1 - weight) * second
    second *= weight
    second += rest


def _box(rng, area, size):
    """Draws a box around any pixel; it has the share `area` before it is cut at the edges."""
    half = np.floor(size * np.sqrt(area)) / 2
    center = np.floor(rng.random(2) * size)
    corners = np.floor([center - half, center + half])
    return np.clip(corners, 0, size).astype(int).reshape(4)
