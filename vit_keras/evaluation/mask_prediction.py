"""Predicts masks of pictures of any size, by resizing them or in tiles that overlap."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from vit_keras import data
from vit_keras.data.depth import at_levels
from vit_keras.evaluation.masks import pixel_matrix, report_matrix
from vit_keras.evaluation.predictors import NO_IMAGES, Predictor, softmax
from vit_keras.resizing import INTERPOLATIONS

LEAST = 1e-6  # the probability that counts as none


@dataclasses.dataclass(frozen=True)
class MaskOptions:
    """How a picture of another size than the model's becomes a mask.

    Attributes:
        tiles: Whether the picture is cut into tiles of the model's size, at its full resolution.
            If not, it is resized to the model's size, and the logits are resized back.
        overlap: The share of a tile's side that it has in common with its neighbor, at least.
        batch: Images per call of the predictor.

    Raises:
        ValueError: `overlap` or `batch` is out of range.
    """

    tiles: bool = False
    overlap: float = 0.25
    batch: int = 8

    def __post_init__(self):
        if not 0 <= self.overlap < 1 or self.batch < 1:
            raise ValueError(
                "`overlap` must be at least 0 and below 1, and `batch` at least 1. "
                f"Received: overlap={self.overlap}, batch={self.batch}"
            )


def predict_mask(
    predictor: Predictor, picture: np.ndarray, options: MaskOptions | None = None
) -> np.ndarray:
    """Predicts the class of each pixel of a picture.

    Where tiles overlap, their logits are averaged. A picture that is smaller than a tile is
    continued by its last rows and columns.

    Args:
        predictor: A `Predictor` of masks.
        picture: Pixels `(H, W, C)`, as `data.read_image` gives them.
        options: `MaskOptions`; None resizes the picture.

    Returns:
        The numbers of the classes, `(H, W)` uint8.

    Raises:
        ValueError: The predictor is no model of masks, or its outputs are not finite.

    Example:
        ```python
        predictor, _ = evaluation.open_predictor("runs/segment")
        picture = data.read_image("street.jpg", channels=3)
        mask = evaluation.predict_mask(predictor, picture, MaskOptions(tiles=True))
        ```
    """
    (mask,) = predict_masks(predictor, [picture], options)
    return mask


def predict_masks(
    predictor: Predictor, pictures: Iterable[np.ndarray], options: MaskOptions | None = None
) -> Iterator[np.ndarray]:
    """Yields the mask `(H, W)` uint8 of each picture, of which a batch is read ahead.

    See `predict_mask`, which predicts one.
    """
    check_masks(predictor)
    options = options or MaskOptions()
    predict, remaining = _mirrored if predictor.unmirrored else _plain, iter(pictures)
    levels = predictor.preprocessing.levels
    while chunk := [
        at_levels(picture, levels) for picture in itertools.islice(remaining, options.batch)
    ]:
        for scores in predict(predictor, chunk, options):
            yield scores.argmax(axis=-1).astype("uint8")


def check_masks(predictor: Predictor) -> None:
    """Raises ValueError unless a predictor predicts masks."""
    if predictor.task.kind != "masks":
        raise ValueError(
            "Masks need a model that was trained with task masks. "
            f"Received: a model of {predictor.task.kind}"
        )


def judge_masks(
    predictor: Predictor,
    split: "data.Split",
    class_names: Sequence[str],
    options: MaskOptions | None = None,
) -> dict[str, Any]:
    """Judges a predictor on a split, each mask at the size of its own picture.

    A batch of pictures is in memory at a time.

    Args:
        predictor: A `Predictor` of masks.
        split: A split whose labels are masks.
        class_names: The K names.
        options: How pictures of other sizes than the model's are predicted.

    Returns:
        A report; see `report_matrix`.

    Raises:
        ValueError: The predictor is no model of masks, or the split is empty.

    Example:
        ```python
        dataset = data.load("folder:shapes", channels=3)
        metrics = evaluation.judge_masks(predictor, dataset.split("test"), dataset.class_names)
        print(f"mean IoU {metrics['miou']:.1%}")
        ```
    """
    check_masks(predictor)
    if not len(split):
        raise ValueError(NO_IMAGES)
    split = split.read_as(predictor.preprocessing.levels, predictor.preprocessing.bands)
    matrix = np.zeros((len(class_names),) * 2, "int64")
    true: list[np.ndarray] = []
    with split.reading():
        pictures = _pictures(split, true)
        for predicted in predict_masks(predictor, pictures, options):
            matrix += pixel_matrix(true.pop(0), predicted, len(class_names))
    predictor.disagreement.report()
    return report_matrix(matrix, class_names, len(split))


def _pictures(split, masks):
    """Yields the pictures of a split, and appends their masks `(H, W)` to a list."""
    for index in range(len(split)):
        picture, mask = split.example(index)
        masks.append(mask)
        yield picture


def _mirrored(predictor, pictures, options):
    """Yields sums of the probabilities `(H, W, K)` of pictures and their mirror images."""
    mirrored = [np.asarray(picture)[:, ::-1] for picture in pictures]
    both = [_plain(predictor.unmirrored, chunk, options) for chunk in (pictures, mirrored)]
    for logits, others in zip(*both):
        plain, other = softmax(logits), softmax(others[:, ::-1])
        predictor.disagreement.note("flip", plain[None], other[None])
        predictor.disagreement.keep(1)
        yield plain + other


def _plain(predictor, pictures, options):
    """Yields logits `(H, W, K)` of pictures, from tiles or from the resized pictures."""
    if not options.tiles:
        return _resized(predictor, pictures, options)
    return (_from_tiles(predictor, np.asarray(picture), options) for picture in pictures)


def _resized(predictor, pictures, options):
    """Yields logits `(H, W, K)` of pictures that one call of the predictor sees whole."""
    size, preprocessing = predictor.input_shape[:2], predictor.preprocessing
    pixels = np.stack([data.resize(picture, size, preprocessing) for picture in pictures])
    for picture, logits in zip(pictures, _logits(predictor, pixels, options.batch)):
        yield resize_maps(logits, picture.shape[:2])


def _from_tiles(predictor, picture, options):
    size = predictor.input_shape[:2]
    sides = picture.shape[:2]
    missing = [(0, max(tile - side, 0)) for side, tile in zip(sides, size)]
    picture = np.pad(picture, [*missing, (0, 0)], mode="edge")
    places = [
        (top, left)
        for top in starts(picture.shape[0], size[0], options.overlap)
        for left in starts(picture.shape[1], size[1], options.overlap)
    ]
    cut = lambda x, place: x[tuple(slice(at, at + side) for at, side in zip(place, size))]
    sums = np.zeros((*picture.shape[:2], predictor.num_classes), "float32")
    counts = np.zeros((*picture.shape[:2], 1), "float32")
    for first in range(0, len(places), options.batch):
        chosen = places[first : first + options.batch]
        tiles = np.stack([cut(picture, place) for place in chosen])
        for place, logits in zip(chosen, _logits(predictor, tiles, options.batch)):
            cut(sums, place)[:] += logits
            cut(counts, place)[:] += 1
    return (sums / counts)[: sides[0], : sides[1]]


def starts(side: int, tile: int, overlap: float) -> list[int]:
    """The first pixels of tiles along a side, as evenly spaced as whole pixels allow.

    Neighbors have at least the share `overlap` of their sides in common, and the last tile ends
    with the side.
    """
    step = max(1, int(tile * (1 - overlap)))
    count = 1 + -(-max(side - tile, 0) // step)
    return [round(i * (side - tile) / max(count - 1, 1)) for i in range(count)]


def _logits(predictor, pixels, size):
    """Logits `(N, H, W, K)` of images of the model's size; log-probabilities for probabilities."""
    images = np.asarray(predictor.preprocessing.normalize(pixels), "float32")
    filled = np.concatenate([images, np.repeat(images[-1:], size - len(images), axis=0)])
    outputs = np.asarray(predictor.run(filled), "float32")[: len(images)]
    if not np.isfinite(outputs).all():
        raise ValueError("Outputs must be finite. Received: NaN or infinity")
    return np.log(np.maximum(outputs, LEAST)) if predictor.gives_probabilities else outputs


def resize_maps(maps, size):
    """Resizes maps `(..., h, w, K)` to a height and width, bilinearly with centers at halves."""
    sides = maps.shape[-3:-1]
    if sides == tuple(size):
        return maps
    rule = INTERPOLATIONS["bilinear_half_pixel"]
    rows, columns = (rule(old, new).astype("float32") for old, new in zip(sides, size))
    return np.einsum("ih,jw,...hwk->...ijk", rows, columns, maps, optimize=True)
