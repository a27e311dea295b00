"""Test-time augmentation: averages a model's answers over several views of each image."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from vit_keras.evaluation.mask_prediction import resize_maps
from vit_keras.evaluation.predictors import Predictor
from vit_keras.support.checks import check_choice

SHARE = 7 / 8  # of the image's side
CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1), (0.5, 0.5))  # and the center


def _over_mirror_images(predictor, images):
    """Averages over image and mirror image, symmetrically: a mirrored image mirrors the answer."""
    images = np.asarray(images)
    other, plain = (_answer(predictor, x) for x in (images[:, :, ::-1], images))
    other = other if other.ndim == 2 else other[:, :, ::-1]
    return (plain + other) / 2


def _over_crops(predictor, images):
    """Averages over each image and its enlarged crops; for a pixel, over the views that show it."""
    images = np.asarray(images)
    sides = np.array(images.shape[1:3])
    crop = np.maximum(np.round(sides * SHARE).astype(int), 1)
    starts = [((sides - crop) * corner).astype(int) for corner in CORNERS]
    places = [(slice(y, y + crop[0]), slice(x, x + crop[1])) for y, x in starts]
    views = [resize_maps(images[:, *place], sides) for place in places]
    *answers, plain = [_answer(predictor, view) for view in (*views, images)]
    if plain.ndim == 2:
        return np.mean([plain, *answers], axis=0, dtype="float64").astype("float32")
    sums, counts = plain.astype("float64"), np.ones((*sides, 1))
    for place, answer in zip(places, answers):
        sums[:, *place] += resize_maps(answer, crop)
        counts[place] += 1
    return (sums / counts).astype("float32")


AVERAGES: dict[str, Callable] = {"flip": _over_mirror_images, "crops": _over_crops}


def _answer(predictor, images):
    """Returns probabilities or numbers, `(B, K)` or `(B, H, W, K)`."""
    outputs = predictor.run(np.ascontiguousarray(images))
    return predictor.as_probabilities(np.asarray(outputs, "float32"))


def with_views(predictor: Predictor, views: Sequence[str]) -> Predictor:
    """Returns a predictor that averages its probabilities, or numbers, over views of each image.

    Answers for pixels are mapped back first: the map of a mirror image is mirrored, and the map of
    a crop is resized and put into the crop's place. With "flip" alone, a mirrored image gets
    exactly the mirrored map.

    An average is wrong if the true answer differs between views, such as the direction of an arrow.

    Args:
        predictor: From `open_predictor` or `make_predictor`.
        views: "flip" for the mirror image; "crops" for the four corners and the center, each with
            7/8 of the sides. The image itself is always among the views, and with "flip" every crop
            has its mirror image too.

    Returns:
        A predictor that takes the same images. It has no Keras model.

    Raises:
        ValueError: If there is no such view, or if the predictor predicts boxes or is an exported
            file that returns masks instead of probabilities.

    Example:
        ```python
        predictor, run = evaluation.open_predictor("runs/mine")
        better = evaluation.with_views(predictor, ["flip"])
        ```
    """
    for view in views:
        check_choice(view, AVERAGES, "view")
    if predictor.gives_masks or predictor.task.kind == "boxes":
        raise ValueError(
            "An average over views needs probabilities or numbers. Received: a model of boxes, or "
            "an exported file that returns masks. Leave out the views, or export it again with "
            "--output softmax"
        )
    made = predictor
    for view in sorted(set(views), reverse=True):  # "flip" first, so that crops are mirrored too
        run = functools.partial(AVERAGES[view], made)
        made = dataclasses.replace(made, run=run, gives_probabilities=True, model=None)
    return made
