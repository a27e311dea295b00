"""Writes tables of predictions, one row per image."""

import os
import pathlib
from collections.abc import Sequence

import numpy as np

from vit_keras.data.answers import WRITERS
from vit_keras.files import replacing
from vit_keras.tasks import CLASSES, Task

TYPES = {
    "label": "int32",
    "predicted": "int32",
    "confidence": "float32",
    "correct": "bool",
}


def check_suffix(path: str | os.PathLike) -> str:
    """Returns the suffix, without its dot, of a file of predictions.

    Raises:
        ValueError: If the suffix is neither .parquet nor .csv.
    """
    suffix = pathlib.Path(path).suffix
    if suffix[1:] not in WRITERS:
        raise ValueError(
            f"Predictions can be written to .parquet or .csv files. Received: {os.fspath(path)!r}"
        )
    return suffix[1:]


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
        WRITERS[suffix](file, types, rows)


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
