"""What was predicted, image by image, as a table in a file."""

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
    """The function that writes a table to `path`; ValueError unless it ends in .parquet or .csv."""
    suffix = pathlib.Path(path).suffix
    if suffix not in WRITERS:
        raise ValueError(
            f"Predictions are written to {' or '.join(WRITERS)} files. "
            f"Received: {os.fspath(path)!r}"
        )
    return WRITERS[suffix]


def write_predictions(
    path: str | os.PathLike,
    probabilities: np.ndarray,
    labels: np.ndarray,
    paths: Sequence[str] | None = None,
) -> None:
    """One row an image: index, path (where known), label, predicted, confidence, correct.

    `label` and `predicted` are classes 0 to K − 1, `confidence` is the probability of `predicted`.
    The file's ending decides: .parquet or .csv. It is replaced whole.
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
