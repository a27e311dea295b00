"""`vit-keras check` of several labels and of numbers: what a table says of them."""

import json

import pyarrow
import pyarrow.csv
import pytest
from PIL import Image

from vit_keras import commands

pytestmark = pytest.mark.once

COUNT = 24


@pytest.fixture
def check(tmp_path, capsys):
    """Checks a table of these columns: `(columns, arguments) -> the report`."""
    paths = [f"{i}.png" for i in range(COUNT)]
    for path in paths:
        Image.new("L", (8, 8)).save(tmp_path / path)
    splits = ["train"] * 16 + ["test"] * 8

    def check(columns, *arguments, form="json"):
        rows = {"path": paths, **columns, "split": splits}
        pyarrow.csv.write_csv(pyarrow.table(rows), tmp_path / "rows.csv")
        command = ["check", str(tmp_path / "rows.csv"), "--quick", "--format", form]
        names = ",".join(columns)
        assert commands.main([*command, "--data.label_columns", names, *arguments]) == 0
        printed = capsys.readouterr().out
        return json.loads(printed) if form == "json" else printed

    return check


def test_labels_are_counted(check):
    sun, sea = [1, 0] * 12, [1, 1, 0, 0] * 6
    sea[:9] = [None] * 9
    columns = {"sun": sun, "sea": sea}
    report = check(columns)
    assert report["kind"] == "labels" and report["images"] == {"train": 16, "test": 8}
    assert report["pictures"] == {"train": {"sun": 8, "sea": 3}, "test": {"sun": 4, "sea": 4}}
    assert any(
        text == "labels that are unknown for more than half of the training pictures: sea. They "
        "are learned from the others alone"
        for text in report["warnings"]
    )
    lines = check(columns, form="text").splitlines()
    assert "2 labels        16         8" in [line.rstrip() for line in lines]


def test_numbers_are_described(check):
    age = [20.5 + i for i in range(COUNT)]
    columns = {"age": age, "dose": [0.25] * 16 + [0.5] * 8}
    report = check(columns)
    assert report["kind"] == "numbers" and report["classes"] == ["age", "dose"]
    row = report["numbers"]["train"]["age"]
    assert row == {"known": 16, "min": 20.5, "median": 28.0, "max": 35.5}
    assert report["warnings"] == [
        f"numbers that are the same in all of {split!r}, which have no R²: dose. Leave them out"
        for split in ("train", "test")
    ]
    printed = check(columns, form="text")
    assert "test dose: 0.5 / 0.5 / 0.5 (least / median / most), known of 8" in printed
