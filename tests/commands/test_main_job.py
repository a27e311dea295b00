"""The main job as a user runs it: train and evaluate."""

import csv
import json

import keras
import numpy as np
import pytest
from PIL import Image

from vit_keras.commands import run


@pytest.mark.once
@pytest.mark.slow
def test_the_main_job_reads_digits(tmp_path, capsys):
    trained = tmp_path / "digits"
    run(["train", "--workdir", str(trained)])
    run(["evaluate", str(trained)])
    printed = capsys.readouterr().out
    report = json.loads((trained / "report.json").read_text())
    assert report["accuracy"] >= 0.98 and report["images"] == 360
    assert f"accuracy {100 * report['accuracy']:.2f}% of 360 images" in printed
    last = json.loads((trained / "metrics.json").read_text())[-1]
    assert last["val_accuracy"] == pytest.approx(report["accuracy"], abs=1e-6)
    with open(trained / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert int(rows[-1]["step"]) == 1000 and float(rows[-1]["images_per_second"]) > 0
    environment = json.loads((trained / "environment.json").read_text())
    assert environment["keras"] == keras.__version__
    assert list((trained / "tensorboard" / "validation").iterdir())
    for picture in ("curves.png", "confusion.png"):
        assert np.asarray(Image.open(trained / picture).convert("L")).std() > 5  # not blank
    assert sorted(p.name for p in (trained / "checkpoints").iterdir())[-1] == "step_000001000"
