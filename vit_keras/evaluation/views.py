"""Test-time augmentation: the mean of a model's answers for several views of each image."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from vit_keras import data
from vit_keras.evaluation.predictors import Predictor
from vit_keras.layers.base import check_choice
from vit_keras.models import Preprocessing

SHARE = 7 / 8  # the side of a crop
# Resizes prepared images too, whatever their values.
PLAIN = Preprocessing(antialias=False, rounding="none")


def _flip(images):
    yield images[:, :, ::-1]


def _crops(images) -> Iterator[np.ndarray]:
    """The four corners and the center, enlarged to the whole size."""
    sides = np.array(images.shape[1:3])
    crop = np.maximum(np.round(sides * SHARE).astype(int), 1)
    free = sides - crop
    for top, left in ((0, 0), (0, 1), (1, 0), (1, 1), (0.5, 0.5)):
        y, x = (free * (top, left)).astype(int)
        yield _enlarge(images[:, y : y + crop[0], x : x + crop[1]], tuple(sides))


def _enlarge(images, size):
    """Bilinear resizing, by which values outside [0, 255] keep their places."""
    low, high = images.min(), images.max()
    scale = 255 / max(high - low, 1e-12)
    return data.resize((images - low) * scale, size, PLAIN) / scale + low


VIEWS: dict[str, Callable[[np.ndarray], Iterator[np.ndarray]]] = {"flip": _flip, "crops": _crops}


def with_views(predictor: Predictor, views: Sequence[str]) -> Predictor:
    """Returns a predictor that averages its probabilities, or numbers, over views of each image.

    Args:
        predictor: From `open_predictor` or `make_predictor`.
        views: "flip" for the mirror image; "crops" for the four corners and the center, 7/8 of the
            sides each. The image itself is always among the views, and with "flip" every crop has
            its mirror image as well.

    Returns:
        A predictor that takes the same images. It has no Keras model.

    Raises:
        ValueError: If there is no such view.

    Example:
        ```python
        predictor, run = evaluation.open_predictor("runs/mine")
        better = evaluation.with_views(predictor, ["flip"])
        ```
    """
    for view in views:
        check_choice(view, VIEWS, "view")
    run = functools.partial(_mean, predictor, views)
    return dataclasses.replace(predictor, run=run, gives_probabilities=True, model=None)


def _mean(predictor, views, images):
    images = np.asarray(images)
    seen = [images]
    if "crops" in views:
        seen += VIEWS["crops"](images)
    if "flip" in views:
        seen += [mirrored for view in seen for mirrored in VIEWS["flip"](view)]
    answers = [predictor.as_probabilities(np.asarray(predictor.run(view))) for view in seen]
    return np.mean(answers, axis=0, dtype="float64").astype("float32")
