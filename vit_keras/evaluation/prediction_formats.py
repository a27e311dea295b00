"""The formats in which predictions for picture files are written, row by row as they come."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import numpy as np

from vit_keras.evaluation.file_predictions import FilePrediction
from vit_keras.evaluation.page import write_page
from vit_keras.evaluation.predictions import write_table


def write_file_predictions(
    predictions: Iterable[FilePrediction],
    file: IO[bytes],
    form: str,
    *,
    top: int,
    threshold: float = 0.0,
    title: str = "Predictions",
) -> None:
    """Writes predictions for picture files, each row before it takes the next prediction.

    All formats write the same rows in the order of the predictions. Where a picture has fewer
    classes than `top`, the others are empty or absent. Probabilities are the shortest decimals that
    give the float32 values again. A byte of a file name that is not UTF-8 becomes an escape, such
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

    Raises:
        ImportError: If PyArrow is not installed, for "csv" and "parquet".

    Example:
        ```python
        rows = evaluation.predict_files(predictor, paths, top=3)
        with open("labels.csv", "wb") as file:
            evaluation.write_file_predictions(rows, file, "csv", top=3)
        ```
    """
    FORMATS[form](predictions, file, top=top, threshold=threshold, title=title)


def _write_text(predictions, file, *, threshold, **_):
    nothing = f"no class at {100 * threshold:g}% or more"
    for row in predictions:
        classes = ", ".join(f"{name} {100 * share:.1f}%" for name, share in row.classes)
        _write_line(file, f"{row.path}: {row.error or classes or nothing}")


def _write_jsonl(predictions, file, **_):
    for row in predictions:
        classes = [{"name": name, "probability": _shortest(share)} for name, share in row.classes]
        fields = {"path": os.fspath(row.path), "classes": classes, "error": row.error}
        _write_line(file, json.dumps(fields, ensure_ascii=False))


def _write_csv(predictions, file, *, top, **_):
    write_table(file, ".csv", _types(top), _rows(predictions))


def _write_parquet(predictions, file, *, top, **_):
    write_table(file, ".parquet", _types(top), _rows(predictions))


def _write_html(predictions, file, *, threshold, title, **_):
    write_page(predictions, file, threshold, title)


FORMATS: dict[str, Callable[..., None]] = {
    "table": _write_text,
    "csv": _write_csv,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
    "html": _write_html,
}


def _types(top):
    """The columns of a table and their types."""
    ranked = {"class": "string", "probability": "float32"}
    columns = {f"{name}_{k}": kind for k in range(1, top + 1) for name, kind in ranked.items()}
    return {"path": "string", **columns, "error": "string"}


def _rows(predictions) -> Iterator[dict[str, Any]]:
    for prediction in predictions:
        path = os.fspath(prediction.path).encode("utf-8", "backslashreplace").decode()
        row = {"path": path, "error": prediction.error}
        for rank, (name, share) in enumerate(prediction.classes, 1):
            row |= {f"class_{rank}": name, f"probability_{rank}": share}
        yield row


def _shortest(share: float) -> float:
    """The float with the fewest digits among those that are the same in float32."""
    return float(str(np.float32(share)))


def _write_line(file, line):
    file.write(f"{line}\n".encode("utf-8", "backslashreplace"))
