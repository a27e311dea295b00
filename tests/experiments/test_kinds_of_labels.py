"""Labels and numbers from end to end: train, stop and go on, evaluate, export, predict."""

import csv
import json
import shutil

import numpy as np
import pyarrow
import pyarrow.csv
import pytest
import sklearn.metrics as reference
from PIL import Image
from sklearn.datasets import load_digits

import vit_keras
from tests.training.kill import model_differences
from tests.training.small import copy_as_killed
from vit_keras import evaluation
from vit_keras.commands import run

SIDE, TRAIN, TEST = 8, 64, 24
FIELDS = (
    *("--model.image_size", str(SIDE), "--model.patch_size", "4", "--model.channels", "1"),
    *("--model.hidden_size", "16", "--model.num_layers", "1", "--model.num_heads", "2"),
    *("--model.mlp_dim", "32", "--model.dropout_rate", "0.1", "--batch", "16"),
    *("--batch_eval", "32", "--total_steps", "12", "--eval_every", "6"),
    *("--checkpoint_every", "3", "--keep_checkpoints", "9", "--kernels", "default"),
    *("--optimizer.learning_rate", "0.01"),
)
KINDS = {
    "labels": ("even,big,round", "--data.dev_percent", "25", "--calibrate", "true"),
    "numbers": ("ink,tilt", "--loss", "huber"),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Digits as pictures, with labels and numbers, a tenth of them unknown."""
    folder, rng = tmp_path_factory.mktemp("table"), np.random.default_rng(0)
    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype("uint8")
    rows = {"path": [], "even": [], "big": [], "round": [], "ink": [], "tilt": []}
    for i, (image, digit) in enumerate(zip(images[: TRAIN + TEST], digits.target)):
        Image.fromarray(image).save(folder / f"{i}.png")
        rows["path"].append(f"{i}.png")
        values = int(digit % 2 == 0), int(digit >= 5), int(digit in (0, 6, 8, 9)), image.mean() / 8
        tilt = 40.0 + (np.arange(SIDE) * image.mean(axis=0)).sum() / image.mean()
        for name, value in zip(list(rows)[1:], (*values, tilt)):
            rows[name].append(None if rng.random() < 0.1 else value)
    rows["split"] = ["train"] * TRAIN + ["test"] * TEST
    pyarrow.csv.write_csv(pyarrow.table(rows), folder / "rows.csv")
    return folder / "rows.csv"


@pytest.fixture(scope="module", params=KINDS)
def trained(request, table, tmp_path_factory):
    """The kind, its arguments, and the folder of its run."""
    columns, *more = KINDS[request.param]
    arguments = ["train", *FIELDS, "--dataset", f"table:{table}", *more]
    arguments += ["--data.label_columns", columns]
    folder = tmp_path_factory.mktemp("runs") / request.param
    run([*arguments, "--workdir", str(folder)])
    return request.param, arguments, folder


@pytest.mark.nightly_on("tensorflow")
def test_a_killed_run_goes_on_to_the_same_bits(trained, tmp_path):
    _, arguments, folder = trained
    killed = copy_as_killed(folder, tmp_path / "killed", 3)
    run([*arguments, "--workdir", str(killed)])
    assert not model_differences(folder, killed)
    assert json.loads((folder / "report.json").read_text()) == json.loads(
        (killed / "report.json").read_text()
    )
    tasks = [vit_keras.open(place / "model.keras").task for place in (folder, killed)]
    assert tasks[0] == tasks[1]


@pytest.mark.on("torch")
def test_the_figures_equal_scikit_learns(trained, tmp_path):
    kind, _, folder = trained
    out = tmp_path / "predictions.csv"
    run(["evaluate", str(folder), "--predictions", str(out), "--out", str(tmp_path)])
    report = json.loads((tmp_path / "report.json").read_text())
    with open(out) as file:
        rows = list(csv.DictReader(file))
    names = vit_keras.open(folder / "model.keras").class_names
    assert len(rows) == TEST == report["images"]
    for name, figures in zip(names, report[kind]):
        known = [row for row in rows if row[f"label_{name}"]]
        true = np.array([float(row[f"label_{name}"]) for row in known])
        predicted = np.array([float(row[f"predicted_{name}"]) for row in known])
        if kind == "numbers":
            assert figures["r2"] == pytest.approx(reference.r2_score(true, predicted), abs=1e-4)
            assert abs(predicted.mean() - true.mean()) < 2 * true.std()  # in units of the table
            continue
        score = reference.average_precision_score(true, predicted)
        assert figures["average_precision"] == pytest.approx(score, abs=1e-6)
        chosen = predicted >= figures["threshold"]
        f1 = reference.f1_score(true, chosen, zero_division=0)
        assert figures["f1"] == pytest.approx(f1, abs=1e-6)


@pytest.mark.on("torch")
def test_thresholds_and_temperature_come_from_the_development_split(trained):
    kind, _, folder = trained
    task = vit_keras.open(folder / "model.keras").task
    assert task.kind == kind and task.mean is task.shares is None
    if kind == "labels":
        report = json.loads((folder / "report.json").read_text())
        assert abs(report["images"] - TRAIN * 0.25) <= 2  # of the training images
        assert list(task.thresholds) == [row["threshold"] for row in report["labels"]]
        assert report["images_chose"] == "temperature and thresholds"
        chose = " held-out images, which chose the temperature and thresholds"
        assert evaluation.headline(report).endswith(chose)
        assert 0.1 <= task.temperature <= 10
    else:
        assert "images_chose" not in json.loads((folder / "report.json").read_text())


@pytest.mark.nightly_on("jax", "torch")
@pytest.mark.slow
@pytest.mark.parametrize(
    "trained", ["labels", pytest.param("numbers", marks=pytest.mark.nightly)], indirect=True
)
def test_exported_files_answer_alike(trained, table, tmp_path, capsys):
    kind, _, folder = trained
    out, pictures = tmp_path / "files", [str(table.parent / f"{i}.png") for i in range(TRAIN, 70)]
    precision = ["--precision", "fp32", "--out", str(out)]
    run(["export", str(folder), "--format", "litert", "onnx", *precision])
    manifest = json.loads((out / "manifest.json").read_text())
    assert all(row["largest_difference"] < 1e-4 for row in manifest["files"])
    assert manifest["task"]["kind"] == kind
    capsys.readouterr()
    answers = []
    for name in ("model.tflite", "model.onnx"):  # without the documents beside them
        shutil.copy(out / name, tmp_path)
    for source in (folder, tmp_path / "model.tflite", tmp_path / "model.onnx"):
        run(["predict", str(source), *pictures, "--format", "jsonl"])
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        answers.append([line["numbers" if kind == "numbers" else "classes"] for line in lines])
    for others in answers[1:]:
        for one, other in zip(answers[0], others, strict=True):
            if kind == "labels":
                assert [row["name"] for row in one] == [row["name"] for row in other]
                one, other = ({row["name"]: row["probability"] for row in x} for x in (one, other))
            assert other == pytest.approx(one, rel=1e-4, abs=1e-5)
