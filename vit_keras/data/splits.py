"""Labelled images by index, the common form of every data set; and parts of them."""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from vit_keras.data.origin import Origin, UnreadableImages
from vit_keras.data.tf_images import FAULTS, cut, decode

HELD_OUT = ("test", "validation", "val")  # "test" means the first of these that there is
SLICE = re.compile(r"([^\[\]]+)(?:\[(-?[\d.]+%?)?:(-?[\d.]+%?)?\])?")


class Split:
    """Labelled images in a fixed order.

    `labels` are `(N,)` integers and `read(index)` gives the image at a scalar int64, `(H, W, C)`
    uint8, in TensorFlow's graph.

    Encoded pictures, which can be read in part, or fail, come with `encoded(index)` in its place:
    the bytes and the label; and with their `origin`. Labels that lie beside the images are then a
    function, called when they are wanted.
    """

    def __init__(self, labels, read=None, *, encoded=None, origin=None, size=None):
        self.labels_are_known = not callable(labels)
        self._labels = labels if callable(labels) else np.asarray(labels, "int32")
        self._size = len(labels) if size is None else size
        self._read, self._encoded, self.origin = read, encoded, origin

    def __len__(self):
        return self._size

    @functools.cached_property
    def labels(self) -> np.ndarray:
        """Class of each image, `(N,)` int32."""
        return self._labels if self.labels_are_known else self._labels()

    @property
    def name(self) -> Callable[[int], str] | None:
        """Index -> what to call an image, such as its path; None where it has no name."""
        return self.origin and self.origin.name

    def read(self, index: tf.Tensor) -> tf.Tensor:
        """The image at an index, `(H, W, C)` uint8."""
        return self.example(index)[0]

    def example(self, index: tf.Tensor, window=None, replace=True) -> tuple[tf.Tensor, tf.Tensor]:
        """Image and label, a scalar int32, at an index, or at the next that can be read.

        `window` may choose a part of the image, as in `tf_images.decode`. Without `replace` an
        image that cannot be read raises TensorFlow's error, which costs less to look out for.
        """
        if self._encoded is None:
            return cut(self._read(index), window), tf.gather(self.labels, index)
        if tf.executing_eagerly():
            return self._eager_example(int(index), window)
        index = tf.cast(index, tf.int64)
        return (self._replaced if replace else self._decoded)(index, window)

    def part(self, indices: np.ndarray) -> "Split":
        """The images at `indices`, in that order; nothing is copied."""
        indices = np.asarray(indices, "int64")
        chosen = tf.constant(indices)
        return Split(
            self.labels[indices] if self.labels_are_known else (lambda: self.labels[indices]),
            self._read and (lambda index: self._read(tf.gather(chosen, index))),
            encoded=self._encoded and (lambda index: self._encoded(tf.gather(chosen, index))),
            origin=self.origin and self.origin.part(indices),
            size=len(indices),
        )

    def with_origin(self, origin: Origin) -> "Split":
        """The same images, of another origin."""
        labels = self.labels if self.labels_are_known else (lambda: self.labels)
        return Split(labels, self._read, encoded=self._encoded, origin=origin, size=len(self))

    def _eager_example(self, index, window):
        while True:
            try:
                return self._decoded(tf.constant(index, tf.int64), window)
            except FAULTS:
                index = int(self._skip(index))

    def _decoded(self, index, window):
        data, label = self._encoded(index)
        image, scale = decode(data, self.origin.channels, window), self.origin.pixel_scale
        return (image if scale == 1 else image * tf.constant(scale, image.dtype)), label

    def _replaced(self, index, window):
        """The example at the first index from `index` on that can be read."""
        nothing = tf.zeros((0, 0, self.origin.channels), tf.uint8), tf.constant(0)

        def attempt(index):
            tried = tf.data.Dataset.from_tensors(index)
            tried = tried.map(lambda index: self._decoded(index, window))
            blank = tf.data.Dataset.from_tensors(nothing)
            tried = tried.ignore_errors(log_warning=False).concatenate(blank)
            return tried.take(1).get_single_element()  # a graph can go on after errors only so

        def go_on(index, image, label):
            index = tf.ensure_shape(tf.numpy_function(self._skip, [index], tf.int64), ())
            return index, *attempt(index)

        any_size = (None, None, self.origin.channels)
        _, image, label = tf.while_loop(
            lambda index, image, label: tf.equal(tf.shape(image)[0], 0),
            go_on,
            (index, *attempt(index)),
            shape_invariants=tuple(map(tf.TensorShape, ((), any_size, ()))),
        )
        return image, label

    def _skip(self, index):
        """Notes an unreadable image; the index that comes next."""
        name, bad = self.origin.name(index), self.origin.unreadable
        bad.add(name, self.origin.reason(index))
        if len(bad.names) >= len(self) and all(
            self.origin.name(i) in bad.names for i in range(len(self))
        ):
            raise ValueError(f"None of {len(self)} images can be read, such as {name}")
        return np.int64((index + 1) % len(self))


def joined(first: Split, second: Split) -> Split:
    """The images of two splits of one data set, one after the other."""
    count = len(first)
    either = lambda one, two: lambda i: one(i) if i < count else two(i - count)

    def branch(one, two):
        if one is None:
            return None
        return lambda i: tf.cond(i < count, lambda: one(i), lambda: two(i - count))

    origin = first.origin and dataclasses.replace(
        first.origin,
        manifest=lambda: [*first.origin.manifest(), *second.origin.manifest()],
        name=either(first.origin.name, second.origin.name),
        reason=either(first.origin.reason, second.origin.reason),
    )
    return Split(
        lambda: np.concatenate([first.labels, second.labels]),
        branch(first._read, second._read),
        encoded=branch(first._encoded, second._encoded),
        origin=origin,
        size=count + len(second),
    )


def from_arrays(images: np.ndarray, labels: np.ndarray) -> Split:
    """A split of images in memory, `(N, H, W, C)` uint8, with their labels `(N,)`."""
    images = tf.constant(images)
    return Split(labels, lambda index: tf.gather(images, index))


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set: `splits` by name, such as "train" and "test", and its classes' names in order."""

    name: str
    splits: dict[str, Split]
    class_names: tuple[str, ...]
    unreadable: UnreadableImages = dataclasses.field(default_factory=UnreadableImages)

    def split(self, name: str) -> Split:
        """The split called `name`, or a slice of it: `train[:90%]`, `train[10%:]`, `train[5:20]`.

        "+" joins two: `train+validation`.
        "test" is also what a data set calls "validation" or "val", where it has no other. Raises
        ValueError for another name, with those that there are, and for a slice without images.
        """
        if "+" in name:
            return functools.reduce(joined, map(self.split, name.split("+")))
        found = SLICE.fullmatch(name)
        base = self._base(found[1]) if found else None
        if base is None:
            raise ValueError(
                f"`split` of {self.name!r} must be one of {', '.join(map(repr, self.splits))}, or "
                f"a slice such as train[:90%]. Received: split={name!r}"
            )
        split, (start, stop) = self.splits[base], found.groups()[1:]
        if start is None and stop is None:
            return split
        indices = np.arange(len(split))[_bound(start, len(split)) : _bound(stop, len(split))]
        if len(indices) == 0:
            raise ValueError(
                f"A slice must hold images. Received: split={name!r} of {len(split)} images"
            )
        return split.part(indices)

    def _base(self, name):
        names = HELD_OUT if name == "test" else (name,)
        return next((n for n in names if n in self.splits), None)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What shows that the data have changed: see `fingerprints.fingerprint`."""
        from vit_keras.data.fingerprints import fingerprint

        return fingerprint(self)


def _bound(text, size):
    if text is None:
        return None
    return round(float(text[:-1]) * size / 100) if text.endswith("%") else int(text)
