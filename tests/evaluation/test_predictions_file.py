"""Tables of predictions are read back."""

import csv

import numpy as np
import pyarrow.parquet
import pytest

from vit_keras import evaluation
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.once

PROBABILITIES = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.25, 0.5, 0.25]], "float32")
LABELS = np.array([0, 1, 1])


def test_parquet_has_one_row_an_image(tmp_path):
    file = tmp_path / "new" / "a.parquet"
    for paths in (["x.png", "y.png", "z.png"], None):  # the second replaces the first
        evaluation.write_predictions(file, PROBABILITIES, LABELS, paths)
        actual = pyarrow.parquet.read_table(file).to_pydict()
        assert actual.pop("path", None) == paths
    assert actual.pop("confidence") == pytest.approx([0.7, 0.6, 0.5])
    assert actual == {
        "index": [0, 1, 2],
        "label": [0, 1, 1],
        "predicted": [0, 2, 1],
        "correct": [True, False, True],
    }
    assert [p.name for p in file.parent.iterdir()] == ["a.parquet"]


def test_csv_says_the_same(tmp_path):
    evaluation.write_predictions(tmp_path / "a.csv", PROBABILITIES, LABELS, ["x", "y", "z"])
    with open(tmp_path / "a.csv") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["index", "path", "label", "predicted", "confidence", "correct"]
    assert [(r["path"], r["label"], r["predicted"], r["correct"]) for r in rows] == [
        ("x", "0", "0", "true"),
        ("y", "1", "2", "false"),
        ("z", "1", "1", "true"),
    ]


def test_a_spreadsheet_computes_no_name(tmp_path):
    names = ["=1+1", "+1", "-1", "@a", "\t=1", "a=1"]
    numbers = np.full((6, 1), -1.5, "float32")
    options = {"task": Task("numbers"), "names": ["=HYPERLINK(1)"]}
    evaluation.write_predictions(tmp_path / "a.csv", numbers, numbers, names, **options)
    with open(tmp_path / "a.csv", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["index", "path", "label_=HYPERLINK(1)", "predicted_=HYPERLINK(1)"]
    assert [row[1] for row in rows] == [*(f"'{name}" for name in names[:-1]), "a=1"]
    assert {cell for row in rows for cell in row[2:]} == {"-1.5"}
