"""Predictions for picture files, batch by batch."""

import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vit_keras import data
from vit_keras.evaluation.predictors import Predictor, check_finite, make_predictor
from vit_keras.support.box_metrics import Boxes
from vit_keras.support.checks import check_choice
from vit_keras.support.machine import read_ahead

if TYPE_CHECKING:
    import keras

ON_ERROR = ("raise", "skip")
NONE = "none of these"  # the answer for a picture for which a model abstains
NO_BOXES = Boxes(np.zeros(0, int), np.zeros(0), np.zeros((0, 4)))
AHEAD = 2  # batches to read while one is computed


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
) -> Generator[FilePrediction, None, None]:
    """Predicts the classes of picture files in the order of their paths.

    Threads read and resize the next pictures while the model computes. At most three batches are in
    memory, so memory does not grow with the number of pictures.

    Args:
        predictor: From `open_predictor` or `make_predictor`.
        paths: The files, such as those from `data.expand_pictures`.
        batch: The number of pictures per call of the predictor.
        top: The largest number of classes per picture.
        threshold: The lowest probability of a class. Classes below it are left out, so a picture
            may have none. None means 0, or the model's own thresholds for labels. A model of
            numbers has no threshold.
        coverage: The rate at which the true answer is to be among the `possible` ones, or within
            the `intervals`, such as 0.9; None to leave them out.
        abstain: The share of known pictures that may get no class, such as 0.05, so that pictures
            of something else get none; None to answer always.
        on_error: `"raise"` to stop at a picture that cannot be read, or `"skip"` to return the
            reason as its `error` and continue.
        picture_px: The longer side of the small copy to return as `picture`; None for no copy.
        attention: Whether to return the attention rollout of each picture.

    Returns:
        An iterator of one `FilePrediction` per path.

    Raises:
        ValueError: If an argument is out of range, if the model's task has no quantiles for
            `coverage` or no floors for `abstain`, or if `attention` is set for an exported file
            or a model without `EncoderBlock` layers. While iterating, if outputs are not finite
            or, with `"raise"`, if a picture cannot be read. The message names the file.
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
    judge = functools.partial(_judged, predictor, top, threshold, coverage, abstain)
    judge(FilePrediction(pathlib.Path()), np.ones(predictor.num_classes, "float32"))
    rollout = _rollout_function(predictor) if attention else None
    answer = functools.partial(_answers, predictor, rollout)
    read = functools.partial(_read, predictor, on_error == "skip", picture_px)
    rows = read_ahead(read, map(pathlib.Path, paths), AHEAD * batch)
    return _predict(predictor, run_batches(rows, batch, answer), judge)


def check_options(on_error: str, threshold: float | None = None, **counts: int) -> None:
    """Refuses an unknown `on_error`, a threshold outside [0, 1], and counts below 1."""
    check_choice(on_error, ON_ERROR, "on_error")
    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"`threshold` must lie in [0, 1]. Received: threshold={threshold}")
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"`{name}` must be positive. Received: {name}={count}")


def run_filled(run: Callable[[np.ndarray], np.ndarray], images: np.ndarray, size: int):
    """Runs N images, repeating the last one up to `size`; returns N outputs in float32.

    Another number of images would recompile the model and change the last bits.
    """
    more = np.repeat(images[-1:], size - len(images), axis=0)
    return np.asarray(run(np.concatenate([images, more])), "float32")[: len(images)]


def read_picture(predictor: Any, path: str | os.PathLike) -> np.ndarray:
    """Reads a picture `(H, W, C)` with the levels and bands of a predictor or an embedder.

    Raises:
        FileNotFoundError, ValueError: As for `data.read_image`.
    """
    pixels = predictor.preprocessing
    return data.read_image(
        path, predictor.input_shape[-1], levels=pixels.levels, bands=pixels.bands
    )


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


def _rollout_function(predictor):
    if predictor.model is None:
        raise ValueError(
            "Attention needs a Keras model with EncoderBlock layers. Received: an exported file, "
            "which keeps no attention weights, or --tta; give the run or checkpoint without --tta"
        )
    from vit_keras import inspection

    return inspection.rollout_function(predictor.model)


def _read(predictor, skip, picture_px, path):
    """Reads one file; returns its prediction without classes, and the model's image or None."""
    row, picture = read_row(predictor, skip, path)
    if picture is None:
        return row, None
    small = None if picture_px is None else data.thumbnail(picture, picture_px)
    size, preprocessing = predictor.input_shape[:2], predictor.preprocessing
    seen = data.seen_part(picture.shape[:2], size, preprocessing)
    return dataclasses.replace(row, picture=small, seen=seen), prepared(predictor, picture)


def prepared(predictor: Any, picture: np.ndarray) -> np.ndarray:
    """Resizes and normalizes a picture for a predictor or an embedder."""
    preprocessing = predictor.preprocessing
    pixels = data.resize(picture, predictor.input_shape[:2], preprocessing)
    return preprocessing.normalize(pixels)


def read_row(
    predictor: Predictor, skip: bool, path: pathlib.Path
) -> tuple[FilePrediction, np.ndarray | None]:
    """Reads one file; returns its empty prediction, and the pixels or, if it is skipped, None."""
    picture, error = read_or_reason(functools.partial(read_picture, predictor, path), skip)
    if picture is None:
        return FilePrediction(path, error=error, kind=predictor.task.kind), None
    return FilePrediction(path, size=picture.shape[1::-1], kind=predictor.task.kind), picture


def read_or_reason(
    read: Callable[[], np.ndarray], skip: bool
) -> tuple[np.ndarray, None] | tuple[None, str]:
    """Returns the pixels from `read` and None, or None and the reason for skipping them."""
    try:
        return read(), None
    except (OSError, ValueError) as error:
        if not skip:
            raise
        return None, str(error)


def answer_files(
    predictor: Predictor,
    paths: Iterable[str | os.PathLike],
    predict: Callable[..., Iterator],
    options: Any,
    on_error: str = "raise",
) -> Iterator[tuple[FilePrediction, Any]]:
    """Yields, for each file, an empty prediction that holds the pixels, and the answer or None.

    Args:
        predictor: A `Predictor` of masks or boxes.
        paths: The files.
        predict: `predict_masks` or `predict_boxes`.
        options: `TileOptions`.
        on_error: As in `predict_files`.
    """
    count = AHEAD if options.tiles else options.batch
    rows = read_ahead(
        functools.partial(read_row, predictor, on_error == "skip"), map(pathlib.Path, paths), count
    )
    with contextlib.closing(rows):
        while chunk := [*itertools.islice(rows, count)]:
            pictures = [picture for _, picture in chunk if picture is not None]
            answers = predict(predictor, pictures, options)
            for row, picture in chunk:
                answer = None if picture is None else next(answers)
                yield dataclasses.replace(row, picture=picture), answer


def run_batches(rows: Generator, batch: int, answer: Callable, size: int = 0) -> Iterator[list]:
    """Answers pairs of a row and an image (or None), batch by batch.

    Args:
        rows: A generator of pairs, closed at the end.
        batch: The largest number of rows in a batch.
        answer: Takes images `(N, H, W, C)` and the batch size to pad them to; returns N answers.
        size: The smallest batch size to pad to; it grows with the largest batch so far.

    Returns:
        An iterator of lists of (row, answer); the answer is None without an image.
    """
    with contextlib.closing(rows):
        while chunk := list(itertools.islice(rows, batch)):
            images = np.array([image for _, image in chunk if image is not None], "float32")
            size = max(size, len(images))
            answers = iter(answer(images, size) if len(images) else ())
            yield [(row, None if image is None else next(answers)) for row, image in chunk]


def _predict(predictor, batches, judge):
    with contextlib.closing(batches):
        for row, answer in itertools.chain.from_iterable(batches):
            if answer is not None:
                outputs, attention = answer
                check_finite(outputs, row.path)
                row = judge(dataclasses.replace(row, attention=attention), outputs)
            yield row


def _answers(predictor, rollout, images, size):
    """Returns probabilities `(K,)` and attention `(h, w)`, or None, for each of N images."""
    outputs = run_filled(predictor.run, images, size)
    attention = run_filled(rollout, images, size) if rollout else itertools.repeat(None)
    return zip(predictor.as_probabilities(outputs), attention)


def _judged(predictor, top, threshold, coverage, abstain, row, outputs):
    """Adds to a prediction what the outputs `(K,)` mean."""
    if coverage is not None or abstain is not None:
        from vit_keras.evaluation import conformal

    task = predictor.task
    changes: dict[str, Any] = {}
    names = predictor.names
    if task.kind == "numbers":
        changes["classes"] = tuple(zip(names, map(float, outputs)))
        if coverage is not None:
            bounds = conformal.intervals(outputs[None], task, coverage)[0]
            changes["intervals"] = tuple(map(tuple, bounds.tolist()))
    elif coverage is not None:
        possible = conformal.possible_answers(outputs[None], task, coverage)[0]
        changes["possible"] = tuple(names[k] for k in outputs.argsort()[::-1] if possible[k])
    if abstain is not None and conformal.abstains(outputs[None], task, abstain)[0]:
        changes["nothing"] = NONE
    elif task.kind != "numbers":
        changes["classes"] = _most_likely(names, task, outputs, top, threshold)
        if not changes["classes"]:
            is_set = threshold is not None
            changes |= {"nothing": f"no class at {100 * threshold:g}% or more"} if is_set else {}
    return dataclasses.replace(row, **changes)


def _most_likely(names, task, outputs, top, threshold):
    """Returns names and probabilities of `top` outputs above their thresholds."""
    present = outputs >= outputs.dtype.type(threshold or 0.0)
    if threshold is None and task.kind == "labels":
        present = task.present(outputs)
    order = [k for k in outputs.argsort()[::-1][:top] if present[k]]
    return tuple((names[k], float(outputs[k])) for k in order)
