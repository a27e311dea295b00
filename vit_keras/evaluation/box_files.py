"""Boxes in picture files: predicted batch by batch, and written in each format."""

import dataclasses
import functools
import itertools
import json
import os
import pathlib
from collections.abc import Generator, Iterable, Sequence
from typing import IO, Any

from vit_keras import data
from vit_keras.evaluation.answers import (
    PICTURE_PX,
    Layout,
    picture_figure,
    shortest,
    utf8,
    write_answers,
)
from vit_keras.evaluation.box_prediction import certain, draw_boxes, predict_boxes
from vit_keras.evaluation.file_predictions import FilePrediction, check_options, read_row
from vit_keras.evaluation.mask_prediction import TileOptions
from vit_keras.evaluation.predictors import Predictor
from vit_keras.support.box_metrics import coco_rows
from vit_keras.support.command_line import on_one_line
from vit_keras.support.machine import read_ahead

CORNERS = ("left", "top", "right", "bottom")


def predict_box_files(
    predictor: Predictor,
    paths: Iterable[str | os.PathLike],
    options: TileOptions | None = None,
    *,
    threshold: float | None = None,
    on_error: str = "raise",
) -> Generator[FilePrediction, None, None]:
    """Predicts the boxes of picture files in the order of their paths.

    Args:
        predictor: A `Predictor` of boxes.
        paths: The files, such as those from `data.expand_pictures`.
        options: `TileOptions`; None resizes each picture to the model's size.
        threshold: The lowest score of a box; None for the model's own thresholds.
        on_error: As in `predict_files`.

    Raises:
        ValueError: The predictor does not predict boxes, or, with "raise", a picture cannot be
            read. The message names the file.
        OSError: With "raise", a file does not exist or cannot be opened.

    Example:
        ```python
        predictor, _ = evaluation.open_predictor("runs/boxes")
        for row in evaluation.predict_box_files(predictor, ["street.jpg"]):
            print(row.boxes.classes, row.boxes.scores, row.boxes.corners)
        ```
    """
    options = options or TileOptions()
    check_options(options.batch, on_error)
    read = functools.partial(read_row, predictor, on_error == "skip")
    rows = read_ahead(read, map(pathlib.Path, paths), options.batch)
    while chunk := [*itertools.islice(rows, options.batch)]:
        pictures = [picture for _, picture in chunk if picture is not None]
        answers = predict_boxes(predictor, pictures, options)
        for row, picture in chunk:
            if picture is not None:
                boxes = certain(next(answers), predictor.task, threshold)
                row = dataclasses.replace(row, boxes=boxes, picture=picture)
            yield row


def write_box_predictions(
    predictions: Iterable[FilePrediction],
    file: IO[bytes],
    form: str,
    names: Sequence[str],
    title: str = "Predictions",
) -> None:
    """Writes the boxes of picture files.

    Args:
        predictions: From `predict_box_files`.
        file: The open file.
        form: "table" is a line of text for each picture. "csv" and "parquet" have a row for each
            box, with the columns path, class, score, left, top, right, bottom and error, and a row
            without a box for other pictures. "jsonl" has an object for each picture. "coco" is one
            JSON with images, annotations (which have a score) and categories. "html" is a
            self-contained page. All places are pixels of the picture.
        names: The K names.
        title: The heading of a page.

    Raises:
        ImportError: If PyArrow is not installed, for "parquet".

    Example:
        ```python
        rows = evaluation.predict_box_files(predictor, paths)
        with open("boxes.csv", "wb") as file:
            evaluation.write_box_predictions(rows, file, "csv", predictor.class_names)
        ```
    """
    if form == "coco":
        file.write(json.dumps(_coco(predictions, names)).encode())
        return
    numbers = dict.fromkeys(("score", *CORNERS), "float32")
    layout = Layout(
        columns={"path": "string", "class": "string", **numbers, "error": "string"},
        rows=lambda prediction: _rows(prediction, names),
        fields=lambda prediction: _fields(prediction, names),
        text=lambda prediction: _text(prediction, names),
        page=lambda prediction: picture_figure(_on_page(prediction, names)),
    )
    write_answers(predictions, file, form, layout, title)


def _rows(prediction, names):
    path = {"path": utf8(prediction.path), "error": prediction.error}
    boxes = prediction.boxes
    for k, score, corners in zip(*boxes):
        yield {**path, "class": names[k], "score": score, **dict(zip(CORNERS, corners))}
    if not len(boxes.scores):
        yield path


def _fields(prediction, names):
    width, height = prediction.size
    boxes = [
        {"name": names[k], "score": shortest(score), "corners": [*map(shortest, corners)]}
        for k, score, corners in zip(*prediction.boxes)
    ]
    size = {"width": width, "height": height}
    return {"path": os.fspath(prediction.path), **size, "boxes": boxes, "error": prediction.error}


def _text(prediction, names):
    texts = [
        f"{names[k]} {100 * score:.1f}% [{', '.join(f'{x:.0f}' for x in corners)}]"
        for k, score, corners in zip(*prediction.boxes)
    ]
    return on_one_line(f"{prediction.path}: {prediction.error or ', '.join(texts) or 'nothing'}")


def _on_page(prediction, names) -> FilePrediction:
    """Draws the boxes on a small copy of the picture."""
    row = dataclasses.replace(prediction, nothing="nothing")
    if prediction.picture is None:
        return row
    small = data.thumbnail(prediction.picture, PICTURE_PX)
    boxes = prediction.boxes
    scaled = boxes._replace(corners=boxes.corners * small.shape[1] / prediction.size[0])
    classes = tuple((names[k], float(score)) for k, score, _ in zip(*boxes))
    return dataclasses.replace(row, classes=classes, picture=draw_boxes(small, scaled, names))


def _coco(predictions, names) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    images = []
    for number, prediction in enumerate(predictions, 1):
        width, height = prediction.size
        name = utf8(prediction.path)
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        rows += [{"image_id": number, **row} for row in coco_rows(prediction.boxes)]
    return {
        "images": images,
        "annotations": [{"id": number, **row} for number, row in enumerate(rows, 1)],
        "categories": [{"id": k, "name": name} for k, name in enumerate(names)],
    }
