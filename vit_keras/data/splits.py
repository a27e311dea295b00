"""Labeled images by index: the common form of all data sets' splits, and their sums."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from vit_keras.data.origin import Origin
from vit_keras.data.tf_images import FAULTS, cut, decode


class Split:
    """Labeled images in a fixed order.

    Args:
        labels: `(N,)` integers, or `(N, K)` floats with NaN for unknown ones; or a function that
            returns integers, called when they are first needed.
        read: Returns the image at a scalar int64 index, `(H, W, C)` uint8, in TensorFlow's graph.
        encoded: Replaces `read` for encoded pictures, which can be decoded in part or be
            unreadable: returns the bytes and the label at an index.
        origin: The source of encoded pictures.
        size: N, if `labels` is a function.
        mask: Makes the label a mask: decodes what `encoded` returns in its place, and cuts the same
            part out of it as out of the picture. `labels` then says which classes it has, `(N, K)`.

    Example:
        >>> split = data.load("digits", channels=1).split("test")
        >>> image, label = split.example(0)  # (8, 8, 1) and a scalar
        >>> len(split), len(split.part([5, 7, 9]))
        (360, 3)
    """

    def __init__(self, labels, read=None, *, encoded=None, origin=None, size=None, mask=None):
        self.labels_are_known = not callable(labels)
        self._labels = labels if callable(labels) else as_labels(labels)
        self._size = len(labels) if size is None else size
        self._read, self._encoded, self.origin, self._mask = read, encoded, origin, mask

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

    def reading(self):
        """Returns the context to read batches in: see `UnreadableImages.reading`."""
        return self.origin.unreadable.reading() if self.origin else contextlib.nullcontext()

    def read(self, index: tf.Tensor) -> tf.Tensor:
        """Returns the image at an index, `(H, W, C)` uint8."""
        return self.example(index)[0]

    def encoded(self, index: int) -> tuple[bytes, np.ndarray] | None:
        """Returns the bytes of the picture at an index and its label; None for images in memory."""
        if self._encoded is None:
            return None
        data, label = self._encoded(tf.constant(index, tf.int64))
        return data.numpy(), label.numpy()

    def example(self, index: tf.Tensor, window=None, replace=True) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns an image and its label.

        Args:
            index: A scalar integer.
            window: Chooses a part of the image, as in `tf_images.decode`.
            replace: Whether the next readable image replaces one that cannot be read. If not,
                TensorFlow's error is raised, which is cheaper to prepare for.

        Returns:
            The image, `(H, W, C)` uint8, and the label: a scalar int32, `(K,)` float32, or a mask
            `(H, W, 1)` uint8.
        """
        if self._encoded is None:
            return cut(self._read(index), window), tf.gather(self.labels, index)
        if tf.executing_eagerly():
            return self._eager_example(int(index), window)
        index = tf.cast(index, tf.int64)
        return (self._replaced if replace else self._decoded)(index, window)

    def part(self, indices: np.ndarray) -> "Split":
        """Returns the images at `indices`, in that order, without copying."""
        indices = np.asarray(indices, "int64")
        chosen = tf.constant(indices)
        return Split(
            self.labels[indices] if self.labels_are_known else (lambda: self.labels[indices]),
            self._read and (lambda index: self._read(tf.gather(chosen, index))),
            encoded=self._encoded and (lambda index: self._encoded(tf.gather(chosen, index))),
            origin=self.origin and self.origin.part(indices),
            size=len(indices),
            mask=self._mask,
        )

    def with_origin(self, origin: Origin) -> "Split":
        """Returns the same images with another origin."""
        labels = self.labels if self.labels_are_known else (lambda: self.labels)
        options = {"encoded": self._encoded, "origin": origin, "mask": self._mask}
        return Split(labels, self._read, size=len(self), **options)

    def _eager_example(self, index, window):
        while True:
            try:
                return self._decoded(tf.constant(index, tf.int64), window)
            except FAULTS:
                index = int(self._skip(index))

    def _decoded(self, index, window):
        data, label = self._encoded(index)
        image, scale = decode(data, self.origin.channels, window), self.origin.pixel_scale
        image = image if scale == 1 else image * tf.constant(scale, image.dtype)
        if self._mask is None:
            return image, label
        mask = self._mask(label, window)
        tf.debugging.assert_equal(tf.shape(image)[:2], tf.shape(mask)[:2])
        return image, mask

    def _replaced(self, index, window):
        """Returns the first readable example from `index` on."""
        if self._mask is not None:
            label, label_shape = tf.zeros((0, 0, 1), tf.uint8), tf.TensorShape((None, None, 1))
        else:
            label = tf.gather(self.labels, index) if self.labels_are_known else tf.constant(0)
            label_shape = label.shape
        nothing = tf.zeros((0, 0, self.origin.channels), tf.uint8), tf.zeros_like(label)

        def attempt(index):
            example = tf.data.Dataset.from_tensors(index)
            example = example.map(lambda index: self._decoded(index, window))
            blank = tf.data.Dataset.from_tensors(nothing)
            example = example.ignore_errors(log_warning=False).concatenate(blank)
            return example.take(
                1
            ).get_single_element()  # the one way to go on after an error in a graph

        def go_on(index, image, label):
            index = tf.ensure_shape(tf.numpy_function(self._skip, [index], tf.int64), ())
            return index, *attempt(index)

        any_size = (None, None, self.origin.channels)
        _, image, label = tf.while_loop(
            lambda index, image, label: tf.equal(tf.shape(image)[0], 0),
            go_on,
            (index, *attempt(index)),
            shape_invariants=tuple(map(tf.TensorShape, ((), any_size, label_shape))),
        )
        return image, label

    def _skip(self, index):
        """Records an unreadable image, and returns the next index."""
        name, unreadable = self.origin.name(index), self.origin.unreadable
        unreadable.add(name, self.origin.reason(index))
        if len(unreadable.names) >= len(self) and all(
            self.origin.name(i) in unreadable.names for i in range(len(self))
        ):
            unreadable.fail(
                f"At least one image must be readable. None of {len(self)} images can be read, "
                f"such as {name}"
            )
        return np.int64((index + 1) % len(self))


def as_labels(labels) -> np.ndarray:
    """Returns classes `(N,)` as int32, and labels or numbers `(N, K)` as float32."""
    labels = np.asarray(labels)
    return labels.astype("int32" if labels.ndim == 1 else "float32")


def joined(first: Split, second: Split) -> Split:
    """Joins two splits of one data set, one after the other."""
    count = len(first)
    either = lambda one, two: lambda i: one(i) if i < count else two(i - count)

    def branch(one, two):
        if one is None:
            return None
        return lambda i: tf.cond(i < count, lambda: one(i), lambda: two(i - count))

    origin = first.origin and dataclasses.replace(
        first.origin,
        files=lambda: [*first.origin.files(), *second.origin.files()],
        name=either(first.origin.name, second.origin.name),
        reason=either(first.origin.reason, second.origin.reason),
    )
    return Split(
        lambda: np.concatenate([first.labels, second.labels]),
        branch(first._read, second._read),
        encoded=branch(first._encoded, second._encoded),
        origin=origin,
        size=count + len(second),
        mask=first._mask,
    )


def from_arrays(images: np.ndarray, labels: np.ndarray) -> Split:
    """Makes a split of images in memory.

    Args:
        images: `(N, H, W, C)` uint8.
        labels: `(N,)` integers, or `(N, K)` floats.

    Example:
        >>> images = np.zeros((6, 32, 32, 3), "uint8")
        >>> from_arrays(images, [0, 1, 0, 1, 0, 1]).part([1, 2]).labels
        array([1, 0], dtype=int32)
    """
    images = tf.constant(images)
    return Split(labels, lambda index: tf.gather(images, index))
