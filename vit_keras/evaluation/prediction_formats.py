"""The formats in which predictions for picture files are written, row by row as they come."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np

from vit_keras.evaluation.file_predictions import FilePrediction
from vit_keras.evaluation.page import answer_text, nothing_at, write_page
from vit_keras.evaluation.predictions import write_table
from vit_keras.visible import visible


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
        form: A name in `FORMATS`. "table" is a line of text for each picture. "csv" and "parquet"
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
    options = {"threshold": threshold, "title": title, "numbers": numbers}
    FORMATS[form](predictions, file, top=top, **options)


def _write_text(predictions, file, *, threshold, numbers, **_):
    for row in predictions:
        texts = (answer_text(name, value, bool(numbers)) for name, value in row.classes)
        line = f"{row.path}: {row.error or ', '.join(texts) or nothing_at(threshold)}"
        _write_line(file, visible(line))


def _write_jsonl(predictions, file, *, numbers, **_):
    for row in predictions:
        answers: Any = {name: _shortest(value) for name, value in row.classes}
        if not numbers:
            answers = [{"name": name, "probability": p} for name, p in answers.items()]
        kind = "numbers" if numbers else "classes"
        fields = {"path": os.fspath(row.path), kind: answers, "error": row.error}
        _write_line(file, json.dumps(fields, ensure_ascii=False))


def _write_csv(predictions, file, *, top, numbers, **_):
    write_table(file, ".csv", _types(top, numbers), _rows(predictions, numbers))


def _write_parquet(predictions, file, *, top, numbers, **_):
    write_table(file, ".parquet", _types(top, numbers), _rows(predictions, numbers))


def _write_html(predictions, file, *, threshold, title, numbers, **_):
    write_page(predictions, file, threshold, title, bool(numbers))


FORMATS: dict[str, Callable[..., None]] = {
    "table": _write_text,
    "csv": _write_csv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
    "html": _write_html,
}


def _types(top, numbers):
    """The columns of a table and their types."""
    if numbers:
        return {"path": "string", **dict.fromkeys(numbers, "float32"), "error": "string"}
    ranked = {"class": "string", "probability": "float32"}
    columns = {f"{name}_{k}": kind for k in range(1, top + 1) for name, kind in ranked.items()}
    return {"path": "string", **columns, "error": "string"}


def _rows(predictions, numbers) -> Iterator[dict[str, Any]]:
    for prediction in predictions:
        path = os.fspath(prediction.path).encode("utf-8", "backslashreplace").decode()
        row: dict[str, Any] = {"path": path, "error": prediction.error}
        if numbers:
            yield row | dict(prediction.classes)
            continue
        for rank, (name, share) in enumerate(prediction.classes, 1):
            row |= {f"class_{rank}": name, f"probability_{rank}": share}
        yield row


def _shortest(share: float) -> float:
    """The float with the fewest digits among those that are the same in float32."""
    return float(str(np.float32(share)))


def _write_line(file, line):
    file.write(f"{line}\n".encode("utf-8", "backslashreplace"))
