"""Runs that are evaluated while they train, and together afterwards."""

import json
import pathlib
import shutil

import numpy as np
import pytest

import vit_keras
from tests.helpers import randomize, write_picture
from vit_keras import data, evaluation
from vit_keras.commands import run
from vit_keras.models import VisionTransformer
from vit_keras.weights import save, save_model

pytestmark = pytest.mark.on("torch")  # which compiles nothing

SMALL = [
    *("--model.hidden_size", "16", "--model.num_layers", "1", "--model.num_heads", "2"),
    *("--model.mlp_dim", "16", "--batch", "32", "--total_steps", "9", "--eval_every", "9"),
    *("--optimizer.warmup_steps", "0"),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A small run on digits, and one that takes all for ones."""
    first, second = (tmp_path_factory.mktemp("runs") / f"run{i}" for i in (0, 1))
    run(["train", *SMALL, "--workdir", str(first)])
    shutil.copytree(first, second)
    model = vit_keras.open(second / "model.keras")
    model.get_layer("head").bias.assign([0, 99, 0, 0, 0, 0, 0, 0, 0, 0])
    save_model(model, second / "model.keras")
    return [str(first), str(second)]


@pytest.mark.parametrize("place", ["Val", "validation"])
def test_imagenets_validation_images_alone_have_real_labels(rng, tmp_path, capsys, place):
    """The command of docs/evaluation.md, on pictures in folders of their classes, without train."""
    model = VisionTransformer(16, 8, 8, 1, 2, 8, num_classes=3, channels=3, seed=0)
    randomize(model, rng, 0.5)
    save(model, tmp_path / "vit.npz", format="google")
    pictures, kinds = [], ("n01440764", "n01443537", "n01484850")
    for number in range(1, 13):
        folder = tmp_path / "imagenet" / place / kinds[number % 3]
        pictures.append(write_picture(folder / f"ILSVRC2012_val_{number:08}.PNG", rng))
    lists = [[int(k) for k in np.flatnonzero(rng.random(3) < 0.5)] for _ in pictures]
    (tmp_path / "real.json").write_text(json.dumps(lists))
    command = ["evaluate", str(tmp_path / "vit.npz"), "--dataset", f"folder:{tmp_path}/imagenet"]
    command += ["--split", place.lower(), "--real", str(tmp_path / "real.json")]
    command += ["--image_size", "16"]
    run([*command, "--out", str(tmp_path / "report")])
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    model = vit_keras.open(tmp_path / "vit.npz", num_heads=2)
    predicted = model.predict(np.stack(pictures) / np.float32(127.5) - 1, verbose=0).argmax(axis=1)
    right = [k in fitting for k, fitting in zip(predicted, lists) if fitting]
    assert report["images"] == 12 and report["real_images"] == len(right)
    assert report["real_accuracy"] == pytest.approx(np.mean(right))
    assert report["accuracy"] == pytest.approx(np.mean(predicted == np.arange(1, 13) % 3))
    with pytest.raises(ValueError, match="needs a folder with images to train on"):
        run([*command[:4], "--fewshot", "1", "--out", str(tmp_path / "few")])


def features_of(folder):
    """The features and labels of the two splits of digits, by the model of a run."""
    predictor, _ = evaluation.open_predictor(folder)
    dataset, model = data.load("digits", 1), evaluation.feature_model(predictor.model)
    batches = (predictor.batches(dataset.split(name), 200) for name in ("train", "test"))
    return [evaluation.predict(model, each) for each in batches]


def test_probes_of_a_run(folders, capsys):
    run(["evaluate", folders[0], "--fewshot", "1", "5", "--l2", "1024", "16", "--seeds", "2"])
    run(["evaluate", folders[0], "--knn", "1", "10"])
    printed = capsys.readouterr().out
    features = features_of(folders[0])
    few = evaluation.few_shot(*features, 10, (1, 5), (1024, 16), 2)
    nearest = evaluation.knn(*features, 10, (1, 10))
    for name, rows, table in (
        ("fewshot", few, evaluation.few_shot_table),
        ("knn", nearest, evaluation.knn_table),
    ):
        found = json.loads(pathlib.Path(folders[0], f"{name}.json").read_text())
        for row, wanted in zip(found, rows, strict=True):
            for key, value in wanted.items():
                np.testing.assert_allclose(row[key], value, atol=0.006, err_msg=key)
        assert table(found) in printed
    with pytest.raises(ValueError, match="is not a run, so `--dataset` must be given"):
        run(["evaluate", f"{folders[0]}/model.keras"])


def test_several_runs_end_with_mean_and_deviation(folders, tmp_path, capsys):
    run(["evaluate", *folders, "--out", str(tmp_path)])
    printed = capsys.readouterr().out.splitlines()
    files = [tmp_path / f"{i + 1}-run{i}" / "report.json" for i in (0, 1)]
    reports = [json.loads(file.read_text()) for file in files]
    assert (tmp_path / "1-run0" / "reliability.png").stat().st_size > 5000
    mean, std = (100 * x for x in evaluation.mean_and_std([r["accuracy"] for r in reports]))
    assert std > 0
    assert printed[-1].startswith(f"2 models: accuracy {mean:.2f} ± {std:.2f}%, top-5 ")
    assert "calibration error" in printed[-1]
    assert [line for line in printed if line in folders] == folders


def test_bench_compares_a_model_with_its_int8_by_keras(folders, tmp_path, capsys):
    run(["bench", folders[0], "--int8", "--dataset", "digits", "--batch", "90", "--rounds", "1"])
    _, right, int8, *_, last = capsys.readouterr().out.splitlines()
    test_set = data.load("digits", 1).split("test")
    answers = []
    for is_int8 in (False, True):
        predictor, _ = evaluation.open_predictor(folders[0])
        if is_int8:
            predictor.model.quantize("int8")
        outputs, _ = predictor.outputs(predictor.batches(test_set, 90))
        answers.append(predictor.as_probabilities(outputs))
    exact, rounded = answers
    accuracy = np.mean(rounded.argmax(axis=-1) == test_set.labels)
    agreed = np.mean(rounded.argmax(axis=-1) == exact.argmax(axis=-1))
    expected = [folders[0], "in", "int8", "360", f"{accuracy:.2%}", f"{agreed:.2%}"]
    assert int8.split()[:6] == expected and float(int8.split()[6]) > 0
    assert right.split()[0] == folders[0]
    assert last.startswith(f"fastest with 90 images per call: {folders[0]}")
    (tmp_path / "a.onnx").touch()
    with pytest.raises(ValueError, match="--int8 quantizes runs and checkpoints"):
        run(["bench", str(tmp_path / "a.onnx"), "--int8"])
