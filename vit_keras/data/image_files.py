"""Splits whose images are files."""

import os
from collections.abc import Sequence

import numpy as np

from vit_keras import extras
from vit_keras.data.origin import Origin, UnreadableImages
from vit_keras.data.splits import Split, as_labels

HEIC = (".heic", ".heif")


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
        extras.check("pillow_heif", extra="heic", purpose="Reading HEIC pictures")
    places = [os.path.join(root, path) for path in paths]
    labels = as_labels(labels)
    origin = Origin(
        files=lambda: list(zip(paths, places)),
        name=places.__getitem__,
        channels=channels,
        unreadable=unreadable,
    )
    return Split(labels, encoded=lambda i: (read_file(places[i]), labels[i]), origin=origin)


def read_file(path: str) -> bytes:
    """Returns the bytes of a file."""
    with open(path, "rb") as file:
        return file.read()
