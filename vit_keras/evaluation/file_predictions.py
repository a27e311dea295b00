"""Predictions for picture files, batch by batch, and averages over views of each image."""

import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vit_keras import data
from vit_keras.evaluation import mask_prediction
from vit_keras.evaluation.box_prediction import certain, predict_boxes
from vit_keras.evaluation.conformal import abstains, intervals, possible_answers
from vit_keras.evaluation.predictors import Predictor, check_finite, filled, make_predictor
from vit_keras.support.box_metrics import Boxes
from vit_keras.support.checks import check_choice
from vit_keras.support.machine import read_ahead

if TYPE_CHECKING:
    import keras

NONE = "none of these"  # the answer for a picture for which a model abstains
NO_BOXES = Boxes(np.zeros(0, int), np.zeros(0), np.zeros((0, 4)))
AHEAD = 2  # batches to read while one is computed
# By kind of model, the options of `predict_files` that do not apply.
UNUSED = {"numbers": ("threshold",), "boxes": ("coverage", "abstain", "attention")}
UNUSED["masks"] = ("threshold", *UNUSED["boxes"])
PLACES: dict[str, Callable] = {"masks": mask_prediction.predict_masks, "boxes": predict_boxes}


@dataclasses.dataclass(frozen=True)
class FilePrediction:
    """The prediction for one picture.

    Attributes:
        path: The file.
        classes: Names and probabilities of classes or labels, the most likely one first; empty if
            there is an `error`, or if none reaches the threshold. For a model of numbers, their
            names and values; for boxes, the class and the score of each.
        error: Why the picture could not be read, or None.
        possible: The names of all classes or labels that are possible at the requested coverage.
        intervals: The (lower, upper) bounds of each number at the requested coverage.
        nothing: Why there are no classes.
        kind: The kind of the model's outputs, as in `Task`.
        size: The picture's width and height in pixels; zeros if there is an `error`.
        boxes: The objects that reach their thresholds, the most certain one first.
        mask: The class of each pixel, `(H, W)` uint8, from a model of masks.
        picture: A small copy of the picture, `(h, w, 3)` uint8, if requested; with boxes or a mask,
            its pixels `(H, W, C)`.
        attention: How much of each patch reaches the classifier, `(rows, columns)`, if requested.
        seen: The part of the picture that the patches cover, (top, left, height, width) as
            fractions of its sides.

    Example:
        ```python
        options = {"picture_px": evaluation.PICTURE_PX, "attention": True}
        (row,) = evaluation.predict_files(predictor, ["cat.jpg"], **options)
        name, probability = row.classes[0]
        row.attention  # (14, 14) for a model of 224 x 224 pixels with patches of 16 x 16
        ```
    """

    path: pathlib.Path
    classes: tuple[tuple[str, float], ...] = ()
    error: str | None = None
    possible: tuple[str, ...] | None = None
    intervals: tuple[tuple[float, float], ...] | None = None
    nothing: str = "nothing"
    kind: str = "classes"
    size: tuple[int, int] = (0, 0)
    boxes: Boxes = dataclasses.field(default=NO_BOXES, compare=False)
    mask: np.ndarray | None = dataclasses.field(default=None, compare=False, repr=False)
    picture: np.ndarray | None = dataclasses.field(default=None, compare=False, repr=False)
    attention: np.ndarray | None = dataclasses.field(default=None, compare=False, repr=False)
    seen: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)


def predict_files(
    predictor: Predictor,
    paths: Iterable[str | os.PathLike],
    *,
    batch: int = 32,
    top: int = 5,
    threshold: float | None = None,
    coverage: float | None = None,
    abstain: float | None = None,
    on_error: str = "raise",
    picture_px: int | None = None,
    attention: bool = False,
    tiles: mask_prediction.TileOptions | None = None,
) -> Generator[FilePrediction, None, None]:
    """Predicts the classes, numbers, masks or boxes of picture files in the order of their paths.

    Threads read and resize the next pictures while the model computes. At most three batches are in
    memory, so memory does not grow with the number of pictures.

    Args:
        predictor: From `open_predictor` or `make_predictor`.
        paths: The files, such as those from `data.expand_pictures`.
        batch: The number of pictures per call of the predictor.
        top: The largest number of classes or labels per picture.
        threshold: The lowest probability of a class, or score of a box. Classes and boxes below it
            are left out, so a picture may have none. None means 0, or the model's own thresholds
            for labels and boxes. Models of numbers or masks have no threshold.
        coverage: The rate at which the true answer is to be among the `possible` ones, or within
            the `intervals`, such as 0.9; None to leave them out.
        abstain: The share of known pictures that may get no class, such as 0.05, so that pictures
            of something else get none; None to always answer.
        on_error: `"raise"` to stop at a picture that cannot be read, or `"skip"` to return the
            reason as its `error` and continue.
        picture_px: The longer side of the small copy to return as `picture`; None for no copy.
        attention: Whether to return the attention rollout of each picture.
        tiles: How to predict masks or boxes, with their own batch size; None resizes each picture
            to the model's size.

    Returns:
        An iterator of one `FilePrediction` per path.

    Raises:
        ValueError: If an argument is out of range or does not apply to the kind of model, if the
            model's task has no quantiles for `coverage` or no floors for `abstain`, or if
            `attention` is set for an exported file or a model without `EncoderBlock` layers. While
            iterating, if outputs are not finite or, with `"raise"`, if a picture cannot be read.
            The message names the file.
        OSError: While iterating with `"raise"`, if a file does not exist or cannot be opened.

    Example:
        ```python
        predictor, _ = evaluation.open_predictor("runs/mine")
        for row in evaluation.predict_files(predictor, data.expand_pictures(["photos"])):
            name, probability = row.classes[0]
            print(f"{row.path}: {name} ({probability:.1%})")
        ```
    """
    check_options(on_error, threshold, batch=batch, top=top)
    options = {"threshold": threshold, "coverage": coverage, "abstain": abstain}
    options["attention"], kind = attention or None, predictor.task.kind
    for name in UNUSED.get(kind, ()):
        if options[name] is not None:
            raise ValueError(f"`{name}` does not apply to a model of {kind}. Leave it out")
    read, ahead = functools.partial(_read, predictor, picture_px), AHEAD
    if kind in PLACES:
        tiles = tiles or mask_prediction.TileOptions(batch=batch)
        batch, ahead = AHEAD if tiles.tiles else tiles.batch, 1  # pictures of any size
        answer = functools.partial(PLACES[kind], predictor, options=tiles)
        judge = functools.partial(_located, predictor, threshold)
    else:
        mask_prediction.refuse_tiles(tiles, kind)
        answer = _answers(predictor, attention)
        judge = functools.partial(_judged, predictor, top, threshold, coverage, abstain)
        judge(FilePrediction(pathlib.Path()), (np.ones(predictor.num_classes, "float32"), None))
    rows = read_batches(read, map(pathlib.Path, paths), batch, on_error, ahead)
    return _predict(rows, answer, judge, kind)


def check_options(on_error: str, threshold: float | None = None, **counts: int) -> None:
    """Refuses an unknown `on_error`, a threshold outside [0, 1], and counts below 1."""
    check_choice(on_error, ("raise", "skip"), "on_error")
    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"`threshold` must lie in [0, 1]. Received: threshold={threshold}")
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"`{name}` must be positive. Received: {name}={count}")


def read_picture(predictor: Any, path: str | os.PathLike) -> np.ndarray:
    """Reads a picture `(H, W, C)` with the levels and bands of a predictor or an embedder.

    Raises:
        FileNotFoundError, ValueError: As for `data.read_image`.
    """
    rules = predictor.preprocessing
    return data.read_image(path, predictor.input_shape[-1], levels=rules.levels, bands=rules.bands)


def prepared(predictor: Any, picture: np.ndarray) -> np.ndarray:
    """Resizes and normalizes a picture for a predictor or an embedder."""
    preprocessing = predictor.preprocessing
    return preprocessing.normalize(data.resize(picture, predictor.input_shape[:2], preprocessing))


def read_batches(read: Callable, items, batch: int, on_error: str, ahead: int = AHEAD) -> Generator:
    """Yields batches of items, each with what `read` returns for it, in order.

    Args:
        read: Called in threads; an OSError or a ValueError means that it cannot read the item.
        items: Its arguments.
        batch: The largest number of items in a batch.
        on_error: "raise", or "skip" to give None and the reason in place of what cannot be read.
        ahead: The number of batches to read while one is used.
    """

    def row(item):
        try:
            return item, read(item), None
        except (OSError, ValueError) as error:
            if on_error == "raise":
                raise
            return item, None, str(error)

    rows = read_ahead(row, items, ahead * batch)
    while chunk := list(itertools.islice(rows, batch)):
        yield chunk


def classify(
    source: "keras.Model | Predictor", paths: Sequence[str | os.PathLike], top: int = 3
) -> list[list[tuple[str, float]]]:
    """Returns the `top` most likely classes and their probabilities for each picture.

    This is a short form of `predict_files` for a few pictures. It also takes a Keras model.

    Raises:
        OSError, ValueError: If a picture cannot be read; the message names the file.

    Example:
        ```python
        for name, probability in evaluation.classify(model, ["cat.jpg"], top=3)[0]:
            print(f"{name}: {probability:.1%}")
        ```
    """
    predictor = source if isinstance(source, Predictor) else make_predictor(source)
    return [list(row.classes) for row in predict_files(predictor, paths, top=top)]


def _read(predictor, picture_px, path):
    """Reads a file; returns its prediction, still without an answer, and the model's input."""
    picture, preprocessing = read_picture(predictor, path), predictor.preprocessing
    row = FilePrediction(path, kind=predictor.task.kind, size=picture.shape[1::-1])
    if row.kind in PLACES:
        return dataclasses.replace(row, picture=picture), picture
    small = None if picture_px is None else data.thumbnail(picture, picture_px)
    seen = data.seen_part(picture.shape[:2], predictor.input_shape[:2], preprocessing)
    return dataclasses.replace(row, picture=small, seen=seen), prepared(predictor, picture)


def _predict(batches, answer, judge, kind):
    for rows in batches:
        answers = answer([read[1] for _, read, _ in rows if read])
        for path, read, error in rows:
            empty = FilePrediction(path, error=error, kind=kind)
            yield judge(read[0], next(answers)) if read else empty


def _answers(predictor, attention):
    """Returns a function that yields probabilities `(K,)` and attention `(h, w)`, or None."""
    run, rollout = filled(predictor.run), None
    if attention:
        model = predictor.keras_model("Attention")
        from vit_keras import inspection

        rollout = filled(inspection.rollout_function(model))

    def answer(images) -> Iterator:
        images = np.array(images, "float32")
        maps = rollout(images) if rollout else itertools.repeat(None)
        yield from zip(predictor.as_probabilities(run(images)), maps)

    return answer


def _located(predictor, threshold, row, answer):
    """Adds a mask or boxes to a prediction."""
    if row.kind == "masks":
        return dataclasses.replace(row, mask=answer)
    boxes = certain(answer, predictor.task, threshold)
    classes = tuple((predictor.names[k], float(score)) for k, score, _ in zip(*boxes))
    return dataclasses.replace(row, boxes=boxes, classes=classes)


def _judged(predictor, top, threshold, coverage, abstain, row, answer):
    """Adds to a prediction what the outputs `(K,)` mean."""
    outputs, attention = answer
    check_finite(outputs, row.path)
    task, names = predictor.task, predictor.names
    changes: dict[str, Any] = {"attention": attention}
    if task.kind == "numbers":
        changes["classes"] = tuple(zip(names, map(float, outputs)))
        if coverage is not None:
            bounds = intervals(outputs[None], task, coverage)[0]
            changes["intervals"] = tuple(map(tuple, bounds.tolist()))
    elif coverage is not None:
        possible = possible_answers(outputs[None], task, coverage)[0]
        changes["possible"] = tuple(names[k] for k in _descending(outputs) if possible[k])
    if abstain is not None and abstains(outputs[None], task, abstain)[0]:
        changes["nothing"] = NONE
    elif task.kind != "numbers":
        present = outputs >= outputs.dtype.type(threshold or 0.0)
        if threshold is None and task.kind == "labels":
            present = task.present(outputs)
        order = [k for k in _descending(outputs)[:top] if present[k]]
        changes["classes"] = tuple((names[k], float(outputs[k])) for k in order)
        if not changes["classes"] and threshold is not None:
            changes["nothing"] = f"no class at {100 * threshold:g}% or more"
    return dataclasses.replace(row, **changes)


def _descending(outputs):
    """Returns the indices of the outputs, the largest first; ties are broken as by `argmax`."""
    return np.argsort(-outputs, kind="stable")


VIEWS = ("flip",)


def with_views(predictor: Predictor, views: Sequence[str]) -> Predictor:
    """Returns a predictor that averages its probabilities, or numbers, over views of each image.

    The map of a mirror image is mirrored back first, so a mirrored image gets exactly the mirrored
    map. An average is wrong if the true answer differs between views, such as the direction of an
    arrow.

    Args:
        predictor: From `open_predictor` or `make_predictor`.
        views: "flip" for the mirror image, besides the image itself.

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
        check_choice(view, VIEWS, "view")
    if predictor.gives_masks or predictor.task.kind == "boxes":
        raise ValueError(
            "An average over views needs probabilities or numbers. Received: a model of boxes, or "
            "an exported file of masks. Leave out the views, or export with --output softmax"
        )
    run = functools.partial(_with_mirror_images, predictor)
    changes: dict[str, Any] = {"run": run, "gives_probabilities": True, "model": None}
    return dataclasses.replace(predictor, **(changes if views else {}))


def _with_mirror_images(predictor, images):
    """Averages the outputs over images and their mirror images."""
    both = [np.asarray(images), np.ascontiguousarray(np.asarray(images)[:, :, ::-1])]
    outputs = (np.asarray(predictor.run(view), "float32") for view in both)
    answers, mirrored = map(predictor.as_probabilities, outputs)
    return (answers + (mirrored if mirrored.ndim == 2 else mirrored[:, :, ::-1])) / 2
