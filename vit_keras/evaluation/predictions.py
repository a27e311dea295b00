"""Writes a table of predictions, one row per image."""

import os
import pathlib
from collections.abc import Sequence

import numpy as np

from vit_keras import extras
from vit_keras.files import replacing


def _pyarrow(module):
    return extras.require(module, extra="data", purpose="Writing predictions to a file")


def _write_parquet(table, path):
    _pyarrow("pyarrow.parquet").write_table(table, path)


def _write_csv(table, path):
    _pyarrow("pyarrow.csv").write_csv(table, path)


WRITERS = {".parquet": _write_parquet, ".csv": _write_csv}


def writer_of(path: str | os.PathLike):
    """Returns the function that writes a table to `path`.

    Raises:
        ValueError: If the suffix is neither .parquet nor .csv.
    """
    suffix = pathlib.Path(path).suffix
    if suffix not in WRITERS:
        raise ValueError(
            f"Predictions can be written to {' or '.join(WRITERS)} files. "
            f"Received: {os.fspath(path)!r}"
        )
    return WRITERS[suffix]


def write_predictions(
    path: str | os.PathLike,
    probabilities: np.ndarray,
    labels: np.ndarray,
    paths: Sequence[str] | None = None,
) -> None:
    """Writes one row per image: index, path (if known), label, predicted, confidence, correct.

    `label` and `predicted` are classes from 0 to K − 1, and `confidence` is the probability of
    `predicted`. A file that exists is replaced at once.

    Args:
        path: A .parquet or .csv file.
        probabilities: `(N, K)`.
        labels: `(N,)` integers.
        paths: The images' names.

    Raises:
        ValueError: If the suffix is neither .parquet nor .csv.
        ImportError: If PyArrow is not installed.
    """
    write = writer_of(path)
    predicted = probabilities.argmax(axis=-1)
    columns = {
        "index": np.arange(len(labels)),
        "path": None if paths is None else [os.fspath(name) for name in paths],
        "label": labels.astype("int32"),
        "predicted": predicted.astype("int32"),
        "confidence": probabilities.max(axis=-1),
        "correct": predicted == labels,
    }
    columns = {name: values for name, values in columns.items() if values is not None}
    table = _pyarrow("pyarrow").table(columns)
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(os.fspath(path)) as temporary:
        write(table, temporary)
