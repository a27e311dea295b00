"""Predictions for picture files as text, CSV, JSON lines, Parquet, or a page of the pictures."""

import html
import os
from collections.abc import Iterable, Sequence
from typing import IO, Any

import numpy as np

from vit_keras.data import answers
from vit_keras.evaluation.file_predictions import FilePrediction
from vit_keras.visible import visible

PICTURE_PX = answers.PICTURE_PX  # for `predict_files`
DARKEST = 0.8  # the opacity over patches without attention


def write_file_predictions(
    predictions: Iterable[FilePrediction],
    file: IO[bytes],
    form: str,
    *,
    top: int,
    threshold: float | None = None,
    title: str = "Predictions",
    numbers: Sequence[str] = (),
) -> None:
    """Writes predictions for picture files, each row before it takes the next prediction.

    All formats write the same rows in the order of the predictions. Where a picture has fewer
    classes than `top`, the others are empty or absent. Probabilities are the shortest decimals that
    give the float32 values again. Numbers have a column, or a field, of their
    name each. A byte of a file name that is not UTF-8 becomes an escape, such
    as `\\udcff`.

    Args:
        predictions: From `predict_files`; with `picture_px` for a page.
        file: The open file.
        form: "table" is a line of text for each picture. "csv" and "parquet"
            have the columns path, class_1, probability_1, …, error. "jsonl" has an object with
            path, classes and error in each line. "html" is a page of the pictures with their
            labels, which needs no other file and no network.
        top: The most classes of a picture, as in `predict_files`.
        threshold: The least probability of a class, as in `predict_files`.
        title: The heading of a page.
        numbers: The names of the numbers that a model predicts instead of classes.

    Raises:
        ImportError: If PyArrow is not installed, for "parquet".

    Example:
        ```python
        rows = evaluation.predict_files(predictor, paths, top=3)
        with open("labels.csv", "wb") as file:
            evaluation.write_file_predictions(rows, file, "csv", top=3)
        ```
    """
    layout = answers.Layout(
        columns=_columns(top, numbers),
        rows=lambda prediction: [_row(prediction, numbers)],
        fields=lambda prediction: _fields(prediction, numbers),
        text=lambda prediction: _text(prediction, threshold, numbers),
        page=lambda prediction: _figure(prediction, threshold, numbers),
    )
    answers.write_answers(predictions, file, form, layout, title)


def _text(prediction, threshold, numbers):
    texts = (_answer_text(name, value, numbers) for name, value in prediction.classes)
    return visible(
        f"{prediction.path}: {prediction.error or ', '.join(texts) or _nothing_at(threshold)}"
    )


def _answer_text(name, value, numbers):
    """A class and its probability, or a number, as in "cat 98.2%" and "age 34.5"."""
    return f"{name} {value:.5g}" if numbers else f"{name} {100 * value:.1f}%"


def _nothing_at(threshold):
    """Why a picture has no class."""
    return "nothing" if threshold is None else f"no class at {100 * threshold:g}% or more"


def _fields(prediction, numbers):
    outputs: Any = {name: answers.shortest(value) for name, value in prediction.classes}
    if not numbers:
        outputs = [{"name": name, "probability": p} for name, p in outputs.items()]
    kind = "numbers" if numbers else "classes"
    return {"path": os.fspath(prediction.path), kind: outputs, "error": prediction.error}


def _columns(top, numbers):
    """The columns of a table and their types."""
    if numbers:
        return {"path": "string", **dict.fromkeys(numbers, "float32"), "error": "string"}
    ranked = {"class": "string", "probability": "float32"}
    columns = {f"{name}_{k}": kind for k in range(1, top + 1) for name, kind in ranked.items()}
    return {"path": "string", **columns, "error": "string"}


def _row(prediction, numbers):
    row = {"path": answers.utf8(prediction.path), "error": prediction.error}
    if numbers:
        return row | dict(prediction.classes)
    for rank, (name, share) in enumerate(prediction.classes, 1):
        row |= {f"class_{rank}": name, f"probability_{rank}": share}
    return row


def _figure(prediction, threshold, numbers):
    """One picture with its classes, or with the reason why it has none."""
    attributes, text = ' class="error"', f"<p>{html.escape(prediction.error or '')}</p>"
    if prediction.classes and numbers:
        numbered = [(name, value, True) for name, value in prediction.classes]
        lines = [html.escape(_answer_text(*row)) for row in numbered]
        attributes, text = "", f"<p>{'<br>'.join(lines)}</p>"
    elif prediction.classes:
        (name, share), *_ = prediction.classes
        attributes = f' data-class="{html.escape(name)}" data-confidence="{share:.6g}"'
        text = f"<ol>\n{''.join(_line(name, share) for name, share in prediction.classes)}</ol>"
    elif not prediction.error:
        attributes, text = ' class="none"', f"<p>{_nothing_at(threshold).replace('%', ' %')}</p>"
    pixels, layer = prediction.picture, _attention(prediction)
    picture = "" if pixels is None else answers.picture_html(pixels, layer)
    path, name = html.escape(os.fspath(prediction.path)), html.escape(prediction.path.name)
    return (
        f"<figure{attributes}>\n{picture}"
        f'<figcaption><b title="{path}">{name}</b>\n{text}</figcaption>\n</figure>\n'
    )


def _line(name, share):
    percent = f"{100 * share:.1f}"
    return (
        f'<li style="--share:{percent}%"><span>{html.escape(name)}</span> '
        f'<data value="{np.float32(share)}">{percent} %</data></li>\n'
    )


def _attention(prediction):
    """A dark layer over the part that the model sees, clear where its attention is."""
    if prediction.attention is None:
        return ""
    share = prediction.attention / prediction.attention.max()
    layer = np.zeros((*share.shape, 2), "uint8")  # gray and opacity
    layer[..., 1] = np.round(255 * DARKEST * (1 - share))
    names = ("top", "left", "height", "width")
    place = ";".join(f"{name}:{100 * x:.4g}%" for name, x in zip(names, prediction.seen))
    source = answers.data_url(layer, "png")
    return f'<img class="attention" style="{place}" src="{source}" alt="attention">'
