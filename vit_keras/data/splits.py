"""Labeled images by index: the common form of all data sets' splits, and their sums."""

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from vit_keras.data.depth import at_levels, choose_channels
from vit_keras.data.origin import Origin, UnreachableError, WholeFault
from vit_keras.data.pillow_images import decode, unreadable_message
from vit_keras.data.transforms import Picture, as_array, as_picture, sides_of


class Split:
    """Labeled images in a fixed order.

    Args:
        labels: `(N,)` integers, or `(N, K)` floats with NaN for unknown ones; or a function that
            returns integers, called when they are first needed.
        read: Returns the image at an index, `(H, W, C)` of uint8, uint16, or floats.
        encoded: Replaces `read` for encoded pictures, which may be unreadable: returns the bytes
            and the label at an index.
        origin: The source of encoded pictures.
        size: N, if `labels` is a function.
        mask: Makes the label a mask: decodes what `encoded` returns in its place to `(H, W)` uint8,
            given the index, the bytes, and the picture's height and width. `labels` then says which
            classes it has, `(N, K)`.
        groups: The group of each image, such as a patient, which no division splits; empty for an
            image of its own. None without groups.

    Example:
        >>> split = data.load("digits", channels=1).split("test")
        >>> image, label = split.example(0)  # (8, 8, 1) and a scalar
        >>> len(split), len(split.part([5, 7, 9]))
        (360, 3)
    """

    def __init__(
        self, labels, read=None, *, encoded=None, origin=None, size=None, mask=None, groups=None
    ):
        self.labels_are_known = not callable(labels)
        self._labels = labels if callable(labels) else as_labels(labels)
        self._size = len(labels) if size is None else size
        self._read, self._encoded, self.origin, self._mask = read, encoded, origin, mask
        self.groups: Sequence[str] | None = groups
        self.levels: float | None = None
        self.bands: tuple[int, ...] = ()

    def __len__(self):
        return self._size

    @functools.cached_property
    def labels(self) -> np.ndarray:
        """The class of each image, `(N,)` int32, or its labels or numbers, `(N, K)` float32.

        For masks, it says which classes are in each one, `(N, K)`.
        """
        return self._labels() if callable(self._labels) else self._labels

    @property
    def name(self) -> Callable[[int], str] | None:
        """Maps an index to the name of an image, such as its path; None if images have no names."""
        return self.origin and self.origin.name

    @property
    def has_masks(self) -> bool:
        """Whether the labels are masks."""
        return self._mask is not None

    def read_as(self, levels: float | None, bands: Sequence[int] = ()) -> "Split":
        """Returns the same images at the levels of a model, and in its channels.

        Args:
            levels: The level that is white, as in `Preprocessing`; None for those of each file.
            bands: The channels of a file in the model's order, counted from 1; empty for those that
                were chosen before.
        """
        split = copy.copy(self)
        split.levels, split.bands = levels, tuple(bands) or self.bands
        return split

    def reading(self):
        """Returns the context to read batches in: see `UnreadableImages.reading`."""
        return self.origin.unreadable.reading() if self.origin else contextlib.nullcontext()

    def read(self, index: int) -> np.ndarray:
        """Returns the image at an index, `(H, W, C)`."""
        return self.example(index)[0]

    def encoded(self, index: int) -> tuple[bytes, np.ndarray] | None:
        """Returns the bytes of the picture at an index and its label; None for images in memory."""
        return None if self._encoded is None else self._encoded(index)

    def example(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns an image and its label; the next readable image replaces an unreadable one.

        Returns:
            The image, `(H, W, C)` of uint8, uint16, or float32, and the label: a scalar int32,
            `(K,)` float32, or a mask `(H, W)` uint8.

        Raises:
            UnreadableImageError: If an unreadable image stops the run, or if none is readable.
        """
        picture, label = self.picture(index)
        return as_array(picture), label

    def picture(self, index: int) -> tuple[Picture, np.ndarray]:
        """Does what `example` does, but returns the image as a picture of `transforms`."""
        if self._encoded is None:
            pixels = self._read(index)
            if self.bands:
                pixels = choose_channels(pixels, pixels.shape[-1], len(self.bands), self.bands)
            return as_picture(as_array(at_levels(pixels, self.levels))), self.labels[index]
        while True:
            try:
                return self.decoded(index)
            except (ImportError, MemoryError):
                raise
            except Exception as error:  # libraries for files raise errors of their own
                index = self._skip(index, error)

    def decoded(self, index: int) -> tuple[Picture, np.ndarray]:
        """Does what `picture` does, but raises the error of an image that cannot be read."""
        data, label = self._encoded(index)
        if (scale := self.origin.pixel_scale) == 1:
            picture = decode(data, self.origin.channels, self.levels, self.bands)
        else:
            picture = decode(data, self.origin.channels, None, self.bands)
            picture = at_levels(picture.point(lambda level: level * scale), self.levels)
        if self._mask is None:
            return picture, label
        return picture, self._mask(index, label, sides_of(picture))

    def part(self, indices: np.ndarray) -> "Split":
        """Returns the images at `indices`, in that order, without copying."""
        indices = np.asarray(indices, "int64")
        chosen = lambda function: function and (lambda i, *more: function(int(indices[i]), *more))
        return Split(
            self.labels[indices] if self.labels_are_known else (lambda: self.labels[indices]),
            chosen(self._read),
            encoded=chosen(self._encoded),
            origin=self.origin and dataclasses.replace(self.origin, name=chosen(self.origin.name)),
            size=len(indices),
            mask=chosen(self._mask),
            groups=self.groups and [self.groups[i] for i in indices],
        ).read_as(self.levels, self.bands)

    def with_origin(self, origin: Origin) -> "Split":
        """Returns the same images with another origin."""
        split = copy.copy(self)
        split.origin = origin
        return split

    def fault(self, index: int, error: Exception) -> str:
        """Says which image cannot be read, and why."""
        if isinstance(error, WholeFault):
            return str(error)
        return unreadable_message(repr(self.origin.name(index)), str(error) or type(error).__name__)

    def _skip(self, index, error):
        """Records an unreadable image, and returns the next index."""
        name, unreadable = self.origin.name(index), self.origin.unreadable
        if isinstance(error, UnreachableError):  # no other picture may stand in for it
            unreadable.fail(str(error))
        unreadable.add(name, self.fault(index, error))
        if len(unreadable.names) >= len(self) and all(
            self.origin.name(i) in unreadable.names for i in range(len(self))
        ):
            unreadable.fail(
                f"At least one image must be readable. None of {len(self)} images can be read, "
                f"such as {name}"
            )
        return (index + 1) % len(self)


def as_labels(labels) -> np.ndarray:
    """Returns classes `(N,)` as int32, and labels or numbers `(N, K)` as float32."""
    labels = np.asarray(labels)
    return labels.astype("int32" if labels.ndim == 1 else "float32")


def joined(first: Split, second: Split) -> Split:
    """Joins two splits of one data set, one after the other."""
    count = len(first)

    def either(one, two):
        if one is None:
            return None
        return lambda i, *more: one(i, *more) if i < count else two(i - count, *more)

    origin = first.origin and dataclasses.replace(
        first.origin,
        files=lambda: [*first.origin.files(), *second.origin.files()],
        name=either(first.origin.name, second.origin.name),
    )
    return Split(
        lambda: np.concatenate([first.labels, second.labels]),
        either(first._read, second._read),
        encoded=either(first._encoded, second._encoded),
        origin=origin,
        size=count + len(second),
        mask=either(first._mask, second._mask),
        groups=first.groups and [*first.groups, *(second.groups or [""] * len(second))],
    ).read_as(first.levels, first.bands)


def from_arrays(images: np.ndarray, labels: np.ndarray) -> Split:
    """Makes a split of images in memory.

    Args:
        images: `(N, H, W, C)` of uint8, uint16, or floats.
        labels: `(N,)` integers, or `(N, K)` floats.

    Example:
        >>> images = np.zeros((6, 32, 32, 3), "uint8")
        >>> from_arrays(images, [0, 1, 0, 1, 0, 1]).part([1, 2]).labels
        array([1, 0], dtype=int32)
    """
    return Split(labels, lambda index: images[index])
