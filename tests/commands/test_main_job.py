"""The main job as a user runs it: train, evaluate, export."""

import csv
import json
import re

import keras
import numpy as np
import pytest
from PIL import Image

from vit_keras import data
from vit_keras.commands import run
from vit_keras.models import Preprocessing
from vit_keras.runtimes import litert_interpreter


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The main job's run on TensorFlow, with one seed."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    run(["train", "--workdir", str(folder)])
    return folder


@pytest.mark.slow
@pytest.mark.on("jax")
def test_a_fifth_of_the_main_job_reads_digits(tmp_path):
    """On another backend; `python train.py` prints the accuracy of the whole job."""
    run(["train", "--total_steps", "200", "--workdir", str(tmp_path / "run")])
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["accuracy"] >= 0.85 and report["images"] == 360
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["backend"] == keras.backend.backend()


@pytest.mark.once
@pytest.mark.slow
def test_the_main_job_reads_digits(trained, capsys):
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


@pytest.mark.once
@pytest.mark.slow
def test_exported_files_answer_as_keras_does(trained, capsys):
    run(["export", str(trained), "--format", "litert"])
    printed = capsys.readouterr().out
    for name in ("model.tflite", "model_int8.tflite"):
        assert re.search(f"{name}: same class: .*, largest difference of a logit", printed)
    assert (trained / "export" / "labels.txt").read_text().split() == list("0123456789")
    split = data.load("digits", 1).split("test").part(range(64))
    resized = [data.resize(split.read(i), (16, 16), Preprocessing()) for i in range(len(split))]
    images, labels = data.to_uint8(resized), split.labels
    interpreter, answers = litert_interpreter(trained / "export" / "model.tflite"), []
    source, target = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    assert source["dtype"] == np.uint8 and tuple(source["shape"]) == (1, 16, 16, 1)
    for image in images:
        interpreter.set_tensor(source["index"], image[None])
        interpreter.invoke()
        answers.append(interpreter.get_tensor(target["index"])[0])
    np.testing.assert_allclose(np.sum(answers, axis=1), 1, atol=1e-3)
    assert (np.argmax(answers, axis=1) == labels).mean() >= 0.95
