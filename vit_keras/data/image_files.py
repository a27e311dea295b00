"""Splits whose images are files."""

import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from vit_keras import extras
from vit_keras.data import tf_images
from vit_keras.data.splits import Origin, Split, UnreadableImages


def from_files(
    root: str, paths: Sequence[str], labels: np.ndarray, channels: int, unreadable: UnreadableImages
) -> Split:
    """A split of the image files at `paths`, relative to the folder `root`."""
    extras.check("PIL", extra="data", purpose="Reading pictures")
    places = [os.path.join(root, path) for path in paths]
    labels = np.asarray(labels, "int32")
    known, files = tf.constant(labels), tf.constant(places)

    def encoded(index):
        return tf.io.read_file(tf.gather(files, index)), tf.gather(known, index)

    origin = Origin(
        manifest=lambda: [f"{path} {os.path.getsize(at)}" for path, at in zip(paths, places)],
        name=lambda index: places[index],
        reason=lambda index: _reason(places[index], channels),
        channels=channels,
        unreadable=unreadable,
    )
    return Split(labels, encoded=encoded, origin=origin)


def _reason(path, channels):
    try:
        tf_images.decode(tf.io.read_file(path), channels)
    except tf_images.FAULTS as error:
        return tf_images.fault_message(repr(path), error)
    return f"{path!r} could not be read at first"
