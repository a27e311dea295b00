"""Writes tables of predictions, one row per image."""

import csv
import io
import itertools
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

import numpy as np

from vit_keras import extras
from vit_keras.files import replacing
from vit_keras.tasks import CLASSES, Task

TYPES = {
    "label": "int32",
    "predicted": "int32",
    "confidence": "float32",
    "correct": "bool",
}


def _write_csv(file, types, rows):
    """Writes each row as it comes. Numbers have the digits of their type, and null is empty."""
    text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(types)
        for row in rows:
            writer.writerow(_csv_text(row.get(name), kind) for name, kind in types.items())
    finally:
        text.detach()


def _csv_text(value, kind):
    if value is None:
        return ""
    if kind == "bool":
        return str(bool(value)).lower()
    return str(value if kind == "string" else np.dtype(kind).type(value))


def _write_parquet(file, types, rows):
    """Writes 4096 rows at a time."""
    purpose = {"extra": "tables", "purpose": "Writing predictions to a Parquet file"}
    parquet = extras.require("pyarrow.parquet", **purpose)
    arrow = extras.require("pyarrow", **purpose)
    schema = arrow.schema([(name, arrow.type_for_alias(kind)) for name, kind in types.items()])
    rows = iter(rows)
    with parquet.ParquetWriter(file, schema) as writer:
        while chunk := list(itertools.islice(rows, 4096)):
            writer.write_batch(arrow.RecordBatch.from_pylist(chunk, schema))


WRITERS = {".parquet": _write_parquet, ".csv": _write_csv}


def check_suffix(path: str | os.PathLike) -> str:
    """Returns the suffix of a file of predictions.

    Raises:
        ValueError: If the suffix is neither .parquet nor .csv.
    """
    suffix = pathlib.Path(path).suffix
    if suffix not in WRITERS:
        raise ValueError(
            f"Predictions can be written to {' or '.join(WRITERS)} files. "
            f"Received: {os.fspath(path)!r}"
        )
    return suffix


def write_table(
    file: IO[bytes], suffix: str, types: Mapping[str, str], rows: Iterable[Mapping[str, Any]]
) -> None:
    """Writes rows as they come: those of a .csv file at once, those of Parquet 4096 at a time.

    Args:
        file: The open file.
        suffix: ".parquet" or ".csv".
        types: The columns and Arrow's names of their types, such as `{"path": "string"}`.
        rows: A value for each column; a missing one is null.

    Raises:
        ImportError: If PyArrow is not installed, for ".parquet".
    """
    WRITERS[suffix](file, types, rows)


def write_predictions(
    path: str | os.PathLike,
    probabilities: np.ndarray,
    labels: np.ndarray,
    paths: Sequence[str] | None = None,
    *,
    task: Task = CLASSES,
    names: Sequence[str] = (),
) -> None:
    """Writes one row per image: index, path (if known), label, predicted, confidence, correct.

    `label` and `predicted` are classes from 0 to K − 1, and `confidence` is the probability of
    `predicted`. For labels and numbers, there are columns label_NAME and predicted_NAME for each
    output instead: what is true, empty where it is unknown, and the probability or the number that
    is predicted. A file that exists is replaced at once.

    Args:
        path: A .parquet or .csv file.
        probabilities: `(N, K)`; for numbers, the predicted ones.
        labels: `(N,)` integers, or `(N, K)`.
        paths: The images' names.
        task: What the outputs are.
        names: The K names, for labels and numbers.

    Raises:
        ValueError: If the suffix is neither .parquet nor .csv.
        ImportError: If PyArrow is not installed, for .parquet.

    Example:
        ```python
        probabilities = evaluation.probabilities(model, images)
        evaluation.write_predictions("predictions.csv", probabilities, labels)
        ```
    """
    suffix = check_suffix(path)
    if task.kind == "classes":
        types, answers = TYPES, _class_rows(probabilities, labels)
    else:
        types, answers = _output_types(names), _output_rows(probabilities, labels, names)
    named = {"index": "int64"} | ({} if paths is None else {"path": "string"})
    rows = (
        {"index": index, "path": None if paths is None else os.fspath(paths[index]), **row}
        for index, row in enumerate(answers)
    )
    types = {**named, **types}
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(os.fspath(path)) as temporary, open(temporary, "wb") as file:
        write_table(file, suffix, types, rows)


def _class_rows(probabilities, labels):
    predicted = probabilities.argmax(axis=-1)
    for row, label, best in zip(probabilities, labels, predicted, strict=True):
        yield {
            "label": int(label),
            "predicted": int(best),
            "confidence": float(row.max()),
            "correct": bool(best == label),
        }


def _output_types(names):
    return {f"{what}_{name}": "float32" for name in names for what in ("label", "predicted")}


def _output_rows(outputs, labels, names):
    known = lambda value: None if np.isnan(value) else float(value)
    for predicted, true in zip(outputs, labels, strict=True):
        yield {
            key: value
            for name, p, y in zip(names, predicted, true)
            for key, value in ((f"label_{name}", known(y)), (f"predicted_{name}", float(p)))
        }
