"""Embeds pictures batch by batch, while threads read the next ones."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from vit_keras import data
from vit_keras.retrieval.embedder import Embedder
from vit_keras.retrieval.picture_lists import Picture

ON_ERROR = ("raise", "skip")
AHEAD = 2  # batches that are read while one is computed


class Batch(NamedTuple):
    """Embeddings of N pictures.

    Attributes:
        pictures: The pictures.
        embeddings: `(N, *shape)` float32; zeros for pictures that cannot be read.
        errors: Why pictures cannot be read, or None, for each.
    """

    pictures: tuple[Picture, ...]
    embeddings: np.ndarray
    errors: tuple[str | None, ...]


def embed_batches(
    embedder: Embedder,
    pictures: Iterable[tuple[int, Picture]],
    read: Callable[[int, str, int], np.ndarray],
    *,
    batch: int,
    size: int,
    on_error: str = "raise",
) -> Generator[Batch, None, None]:
    """Embeds pictures in their order; three batches are in memory at most.

    Args:
        embedder: From `open_embedder`.
        pictures: The pictures with their numbers.
        read: As in `PictureList`.
        batch: The most pictures in a batch.
        size: The number of images that the embedder gets in each call. The last image is repeated
            where there are fewer, since a model is compiled again for another number, and since
            the last bits of an embedding depend on it.
        on_error: `"raise"` to stop at a picture that cannot be read, or `"skip"` to give a reason.

    Raises:
        ValueError: If `batch` or `on_error` is out of range. While iterating, if embeddings are
            not finite or, with "raise", if a picture cannot be read. The message names the file.
        OSError: While iterating with "raise", if a file does not exist or cannot be opened.
    """
    check_options(batch, on_error)
    prepare = functools.partial(_prepare, embedder, read, on_error == "skip")
    return _embed(embedder, data.read_ahead(prepare, pictures, AHEAD * batch), batch, size)


def check_options(batch: int, on_error: str) -> None:
    """Raises ValueError unless `batch` is positive and `on_error` one of `ON_ERROR`."""
    if on_error not in ON_ERROR:
        raise ValueError(f"`on_error` must be 'raise' or 'skip'. Received: on_error={on_error!r}")
    if batch < 1:
        raise ValueError(f"`batch` must be positive. Received: batch={batch}")


def _embed(embedder, rows, batch, size):
    with contextlib.closing(rows):
        while chunk := list(itertools.islice(rows, batch)):
            pictures, images, errors = zip(*chunk)
            yield Batch(pictures, _run(embedder, pictures, images, size), errors)


def _prepare(embedder, read, skip, numbered):
    """The picture, its image for the model or None, and why it cannot be read or None."""
    number, picture = numbered
    height, width, channels = embedder.input_shape
    try:
        pixels = read(number, picture.path, channels)
    except (OSError, ValueError) as error:
        if not skip:
            raise
        return picture, None, str(error)
    pixels = data.resize(pixels, (height, width), embedder.preprocessing)
    return picture, embedder.preprocessing.normalize(pixels), None


def _run(embedder, pictures: Sequence[Picture], images, size):
    present = [i for i, image in enumerate(images) if image is not None]
    embeddings = np.zeros((len(images), *embedder.shape), "float32")
    if present:
        filled = [images[i] for i in present] + [images[present[-1]]] * (size - len(present))
        embeddings[present] = embedder.run(np.stack(filled).astype("float32"))[: len(present)]
    (bad,) = np.nonzero(~np.isfinite(embeddings).reshape(len(images), -1).all(axis=1))
    if len(bad):
        raise ValueError(
            f"Embeddings must be finite. Received: NaN or infinity for {pictures[bad[0]].path!r}"
        )
    return embeddings
