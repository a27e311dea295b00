"""Predicts, judges and draws masks of pictures of any size.

Pixels without a class (number 255) are left out when masks are judged.
"""

import colorsys
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from vit_keras import data
from vit_keras.data import thumbnail
from vit_keras.data.depth import at_levels, pillow, viewable
from vit_keras.evaluation.metrics import class_rows, count_pairs, mean_of_known, share_of
from vit_keras.evaluation.predictors import NO_IMAGES, Predictor, check_finite, filled
from vit_keras.support.checks import check_rules
from vit_keras.support.files import replacing
from vit_keras.support.interpolation import resize_maps
from vit_keras.support.tasks import VOID


def pixel_matrix(true: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """Counts the pixels of each pair of a true and a predicted class.

    Matrices of several pictures add up, so only one mask need be in memory.

    Args:
        true: The classes of pixels, integers of any shape; 255 for no class.
        predicted: The predicted classes, of the same shape.
        num_classes: K.

    Returns:
        `(K, K)` int64: row i, column j counts the pixels of class i that were predicted as class j.

    Raises:
        ValueError: A number is not a class.

    Example:
        >>> pixel_matrix(np.array([[0, 1], [1, 255]]), np.array([[0, 1], [0, 0]]), num_classes=2)
        array([[1, 0],
               [1, 1]])
    """
    known = np.asarray(true) != VOID
    of_known = lambda classes: np.asarray(classes)[known].astype("int64")
    return count_pairs(of_known(true), of_known(predicted), num_classes)


def report_matrix(matrix: np.ndarray, class_names: Sequence[str], images: int) -> dict[str, Any]:
    """Judges masks from a `pixel_matrix`.

    Args:
        matrix: `(K, K)` integers, summed over all pictures.
        class_names: The K names.
        images: The number of pictures.

    Returns:
        "miou" (the mean intersection over union of the classes; scikit-learn's macro Jaccard
        score), "pixel_accuracy", "mean_class_accuracy" (the mean recall), "images", "masks" (for
        each class its pixels, precision, recall, F1 and IoU) and "confusion_matrix". A class that
        occurs in no true or predicted mask has IoU None, and is left out of the means. All
        metrics are None if no pixel has a class.

    Example:
        >>> matrix = pixel_matrix(np.array([0, 1, 1]), np.array([0, 1, 0]), num_classes=2)
        >>> report_matrix(matrix, ["sky", "ground"], images=1)["miou"]
        0.5
    """
    rows, right = class_rows(matrix, class_names, "pixels"), np.diag(matrix)
    either = matrix.sum(axis=0) + matrix.sum(axis=1) - right
    for row, *shared in zip(rows, right, either, strict=True):
        row["iou"] = share_of(*shared)
    return {
        "miou": mean_of_known(rows, "iou"),
        "pixel_accuracy": share_of(np.trace(matrix), matrix.sum()),
        "mean_class_accuracy": mean_of_known(rows, "recall"),
        "images": images,
        "masks": rows,
        "confusion_matrix": matrix.tolist(),
    }


SHOWN, SIDE, GAP = 8, 160, 4  # pictures on a sheet, and the pixels of their sides and gaps


def palette() -> np.ndarray:
    """Returns class colors, `(256, 3)` uint8: class 0 is black, and 255, no class, is white."""
    hues = [(0.02 + 0.618034 * k) % 1 for k in range(VOID)]  # successive classes differ clearly
    colors = [colorsys.hsv_to_rgb(hue, 0.85, 0.95 if k % 2 else 0.75) for k, hue in enumerate(hues)]
    return np.round(255 * np.array([(0, 0, 0), *colors[1:], (1, 1, 1)])).astype("uint8")


def draw_overlay(picture: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Lays the colors of a mask over a picture.

    Args:
        picture: Pixels `(H, W, C)` from `data.read_image`.
        mask: The classes, `(H, W)`. Class 0 and pixels without a class are left unchanged.

    Returns:
        `(H, W, 3)` uint8.

    Example:
        ```python
        mask = evaluation.predict_mask(predictor, picture)
        PIL.Image.fromarray(evaluation.draw_overlay(picture, mask)).save("overlay.png")
        ```
    """
    picture = np.broadcast_to(viewable(picture), (*picture.shape[:2], 3)).astype("float32")
    covered = ((mask != 0) & (mask != VOID))[..., None] * 0.5
    mixed = picture * (1 - covered) + palette()[mask] * covered
    return np.round(mixed).astype("uint8")


def write_mask(
    folder: str | os.PathLike, name: str | os.PathLike, picture: np.ndarray, mask: np.ndarray
) -> list[pathlib.Path]:
    """Writes `folder`/masks/NAME.png and `folder`/overlays/NAME.png.

    Args:
        folder: The folder.
        name: The picture's file name; its suffix is replaced.
        picture: Pixels `(H, W, C)` from `data.read_image`.
        mask: The classes, `(H, W)` uint8. The PNG holds these numbers and a palette.

    Returns:
        The two files.

    Example:
        ```python
        evaluation.write_mask("predicted", "cat.jpg", picture, mask)
        ```
    """
    numbers = pillow().fromarray(np.asarray(mask, "uint8")).convert("L")
    numbers.putpalette(palette().reshape(-1).tolist())
    images = {"masks": numbers, "overlays": draw_overlay(picture, mask)}
    return [
        save_png(image, pathlib.Path(folder, kind, name).with_suffix(".png"))
        for kind, image in images.items()
    ]


def save_png(image: Any, path: pathlib.Path) -> pathlib.Path:
    """Writes a `PIL.Image.Image`, or pixels `(H, W, 3)` uint8, as PNG; returns the path."""
    image = pillow().fromarray(image) if isinstance(image, np.ndarray) else image
    with replacing(path) as temporary:
        image.save(temporary, format="png")
    return path


def save_sheet(panels: Sequence[Sequence[np.ndarray]], path: str | os.PathLike) -> None:
    """Writes equally long rows of pictures `(h, w, 3)` uint8 as a PNG, two rows side by side."""
    height, width = (max(p.shape[axis] for row in panels for p in row) + GAP for axis in (0, 1))
    white: dict[str, Any] = {"constant_values": 255}
    fill = lambda p: np.pad(p, [(0, height - len(p)), (0, width - p.shape[1]), (0, 0)], **white)
    rows = [np.concatenate([*map(fill, row)], axis=1) for row in panels]
    rows += [np.full_like(rows[0], 255)] * (len(rows) % 2)
    pairs = [np.concatenate(rows[i : i + 2], axis=1) for i in range(0, len(rows), 2)]
    save_png(np.concatenate(pairs)[:-GAP, :-GAP], pathlib.Path(path))


@dataclasses.dataclass(frozen=True)
class TileOptions:
    """How to predict masks or boxes of a picture whose size is not the model's.

    Attributes:
        tiles: Whether to cut the picture, at full resolution, into tiles of the model's size. If
            not, the picture is resized to the model's size, and the answer is resized back.
        overlap: The smallest share of a tile's side that overlaps its neighbor.
        batch: Images per call of the predictor.

    Raises:
        ValueError: `overlap` or `batch` is out of range.
    """

    tiles: bool = False
    overlap: float = 0.25
    batch: int = 8

    def __post_init__(self):
        least = ("batch", lambda count: count >= 1, "at least 1")
        share = ("overlap", lambda share: 0 <= share < 1, "at least 0 and below 1")
        check_rules(self, None, (share, least))


def refuse_tiles(options: TileOptions | None, kind: str) -> None:
    """Raises ValueError if `tiles` is set for a model of classes, labels or numbers."""
    if options is not None and options.tiles:
        raise ValueError(f"`tiles` needs a model of masks or boxes. Received: a model of {kind}")


def predict_mask(
    predictor: Predictor, picture: np.ndarray, options: TileOptions | None = None
) -> np.ndarray:
    """Predicts the class of each pixel of a picture.

    Where tiles overlap, their logits are averaged. A picture smaller than a tile is padded with its
    last row and column.

    Args:
        predictor: A `Predictor` of masks.
        picture: Pixels `(H, W, C)` from `data.read_image`.
        options: `TileOptions`; None resizes the picture.

    Returns:
        The numbers of the classes, `(H, W)` uint8.

    Raises:
        ValueError: The predictor does not predict masks, or its outputs are not finite.

    Example:
        ```python
        predictor, _ = evaluation.open_predictor("runs/segment")
        picture = data.read_image("street.jpg", channels=3)
        mask = evaluation.predict_mask(predictor, picture, TileOptions(tiles=True))
        ```
    """
    (mask,) = predict_masks(predictor, [picture], options)
    return mask


def predict_masks(
    predictor: Predictor, pictures: Iterable[np.ndarray], options: TileOptions | None = None
) -> Iterator[np.ndarray]:
    """Yields the mask `(H, W)` uint8 of each picture; reads one batch of pictures at a time.

    See `predict_mask` for a single picture.
    """
    for logits in _logits(predictor, pictures, options or TileOptions()):
        yield logits.argmax(axis=-1).astype("uint8")


def judge_masks(predictor, split, class_names, options=None, sheet=None) -> dict[str, Any]:
    """Judges a predictor on a split, each mask at the size of its picture.

    Only one batch of pictures is in memory at a time.

    Args:
        predictor: A `Predictor` of masks.
        split: A split whose labels are masks.
        class_names: The K names.
        options: How to predict pictures whose size is not the model's.
        sheet: A PNG file in which to draw the first eight pictures beside their true and their
            predicted masks.

    Returns:
        A report; see `report_matrix`.

    Raises:
        ValueError: The predictor does not predict masks, or the split is empty.
    """
    matrix = np.zeros((len(class_names),) * 2, "int64")
    panels: list[list[np.ndarray]] = []
    for picture, true, predicted in predict_labeled(predictor, split, predict_masks, options):
        matrix += pixel_matrix(true, predicted, len(class_names))
        if sheet is not None and len(panels) < SHOWN:
            drawn = [picture, *(draw_overlay(picture, mask) for mask in (true, predicted))]
            panels.append([thumbnail(pixels, SIDE) for pixels in drawn])
    if sheet is not None:
        save_sheet(panels, sheet)
    return report_matrix(matrix, class_names, len(split))


def predict_labeled(predictor: Predictor, split, predict: Callable, options=None) -> Iterator:
    """Yields the pixels, the label, and the answer for each picture of a split.

    Args:
        predictor: A `Predictor` of masks or boxes.
        split: The split. One batch of its pictures is in memory at a time.
        predict: `predict_masks` or `predict_boxes`.
        options: How to predict pictures whose size is not the model's.

    Raises:
        ValueError: If the split is empty.
    """
    if not len(split):
        raise ValueError(NO_IMAGES)
    examples, read = itertools.tee(map(split.read_as(*predictor.depth).example, range(len(split))))
    answers = predict(predictor, (picture for picture, _ in read), options)
    for (picture, label), answer in zip(examples, answers):
        yield picture, label, answer


def outputs_of(predictor: Predictor, pictures, options: TileOptions, kind: str) -> Iterator:
    """Yields each picture with its outputs: one for the resized picture, or one for each tile.

    An output comes with the first row and column of its tile, (0, 0) for the resized picture.

    Raises:
        ValueError: If the predictor does not predict `kind`, or its outputs are not finite.
    """
    if predictor.task.kind != kind:
        raise ValueError(
            f"{kind.capitalize()} need a model that predicts them, such as one that was trained "
            f"with task={kind!r}. Received: a model of {predictor.task.kind}"
        )
    preprocessing, remaining = predictor.preprocessing, iter(pictures)
    while chunk := [
        np.asarray(at_levels(picture, preprocessing.levels))
        for picture in itertools.islice(remaining, 1 if options.tiles else options.batch)
    ]:
        if options.tiles:
            yield chunk[0], _of_tiles(predictor, chunk[0], options)
            continue
        size = predictor.input_shape[:2]
        pixels = np.stack([data.resize(picture, size, preprocessing) for picture in chunk])
        for picture, output in zip(chunk, _run(predictor, pixels, options.batch)):
            yield picture, [((0, 0), output)]


def _of_tiles(predictor, picture, options):
    """Yields each tile's position and output; a small picture is padded by repeating its edge."""
    size = predictor.input_shape[:2]
    missing = [(0, max(tile - side, 0)) for side, tile in zip(picture.shape, size)]
    picture = np.pad(picture, [*missing, (0, 0)], mode="edge")
    lines = (starts(side, tile, options.overlap) for side, tile in zip(picture.shape, size))
    places = itertools.product(*lines)
    while chosen := [*itertools.islice(places, options.batch)]:
        tiles = np.stack([_cut(picture, place, size) for place in chosen])
        yield from zip(chosen, _run(predictor, tiles, options.batch))


def _run(predictor, pixels, size):
    """Returns the outputs for up to `size` images `(N, H, W, C)` of the model's size."""
    images = np.asarray(predictor.preprocessing.normalize(pixels), "float32")
    outputs = filled(predictor.run, size)(images)
    check_finite(outputs)
    return outputs


def _logits(predictor, pictures, options):
    """Yields the logits, or log-probabilities, of each picture, `(H, W, K)`."""
    size, logits = predictor.input_shape[:2], lambda outputs: outputs
    if predictor.gives_probabilities:
        logits = lambda outputs: np.log(np.maximum(outputs, np.float32(1e-6)))
    for picture, outputs in outputs_of(predictor, pictures, options, "masks"):
        sides = picture.shape[:2]
        if not options.tiles:
            for _, output in outputs:
                yield resize_maps(logits(output), sides, "bilinear_half_pixel")
            continue
        sums = np.zeros((*np.maximum(sides, size), predictor.num_classes), "float32")
        counts = np.zeros_like(sums[..., :1])
        for place, output in outputs:
            _cut(sums, place, size)[:] += logits(output)
            _cut(counts, place, size)[:] += 1
        yield (sums / counts)[: sides[0], : sides[1]]


def _cut(x, place, size):
    return x[tuple(slice(at, at + side) for at, side in zip(place, size))]


def starts(side: int, tile: int, overlap: float) -> list[int]:
    """Returns the first pixels of tiles along a side, as evenly spaced as whole pixels allow.

    Neighbors overlap by at least the share `overlap` of their sides, and the last tile ends where
    the side ends.
    """
    step = max(1, int(tile * (1 - overlap)))
    count = 1 + -(-max(side - tile, 0) // step)
    return [round(i * (side - tile) / max(count - 1, 1)) for i in range(count)]
