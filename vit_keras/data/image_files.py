"""Splits whose images are files."""

import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from vit_keras import extras
from vit_keras.data import tf_images
from vit_keras.data.origin import Origin, UnreadableImages
from vit_keras.data.splits import Split, as_labels

HEIC = (".heic", ".heif")


def path_constant(paths: Sequence[str]) -> tf.Tensor:
    """Paths as a tensor of bytes, since names of files may be no text."""
    return tf.constant([os.fsencode(path) for path in paths])


def from_files(
    root: str,
    paths: Sequence[str],
    labels: np.ndarray | Sequence[int],
    channels: int,
    unreadable: UnreadableImages,
) -> Split:
    """Makes a split of image files.

    Args:
        root: A folder.
        paths: The files, relative to `root`.
        labels: The class of each file, `(N,)` integers, or its labels or numbers, `(N, K)`.
        channels: 1 for grayscale or 3 for RGB.
        unreadable: Collects the files that cannot be read.

    Raises:
        ImportError: If Pillow is not installed or, for HEIC, pillow-heif.
    """
    extras.check("PIL", extra="data", purpose="Reading pictures")
    if any(path.lower().endswith(HEIC) for path in paths):
        extras.check("pillow_heif", extra="data", purpose="Reading HEIC pictures")
    places = [os.path.join(root, path) for path in paths]
    labels = as_labels(labels)
    label_tensor, path_tensor = tf.constant(labels), path_constant(places)

    def encoded(index):
        return tf.io.read_file(tf.gather(path_tensor, index)), tf.gather(label_tensor, index)

    origin = Origin(
        files=lambda: list(zip(paths, places)),
        name=lambda index: places[index],
        reason=lambda index: tf_images.reason(
            repr(places[index]), lambda: tf.io.read_file(os.fsencode(places[index])), channels
        ),
        channels=channels,
        unreadable=unreadable,
    )
    return Split(labels, encoded=encoded, origin=origin)
