"""The main job as a user runs it: train, evaluate, export; and what it says when used wrongly."""

import csv
import json

import keras
import numpy as np
import pytest
from PIL import Image

import evaluate
import export
import train
from tests.helpers import randomise, run_script
from vit_keras import data, evaluation
from vit_keras.models import Preprocessing, VisionTransformer
from vit_keras.weights import open_model, save


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The main job's run, with one seed."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    train.main(["--workdir", str(folder)])
    return folder


@pytest.mark.slow
def test_the_main_job_reads_digits(run, capsys):
    evaluate.main([str(run)])
    printed = capsys.readouterr().out
    report = json.loads((run / "report.json").read_text())
    assert report["accuracy"] >= 0.98 and report["images"] == 360
    assert f"accuracy {100 * report['accuracy']:.2f}% of 360 images" in printed
    last = json.loads((run / "metrics.json").read_text())[-1]
    assert last["val_accuracy"] == pytest.approx(report["accuracy"], abs=1e-6)
    with open(run / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert int(rows[-1]["step"]) == 1000 and float(rows[-1]["images_per_second"]) > 0
    environment = json.loads((run / "environment.json").read_text())
    assert environment["backend"] == keras.backend.backend()
    assert environment["keras"] == keras.__version__
    assert list((run / "tensorboard" / "validation").iterdir())
    for picture in ("curves.png", "confusion.png"):
        assert np.asarray(Image.open(run / picture).convert("L")).std() > 5  # not blank
    assert sorted(p.name for p in (run / "checkpoints").iterdir())[-1] == "step_000001000"


@pytest.mark.slow
def test_a_finished_run_is_not_trained_again(run):
    before = open_model(run / "model.keras").get_weights()
    train.main(["--workdir", str(run)])
    for old, new in zip(before, open_model(run / "model.keras").get_weights()):
        np.testing.assert_array_equal(old, new)


@pytest.mark.slow
def test_pictures_are_classified(run, tmp_path, capsys):
    test = data.load("digits", 1).split("test")
    paths = []
    for i in range(5):
        paths.append(str(tmp_path / f"{i}.png"))
        Image.fromarray(test.read(np.int64(i)).numpy()[..., 0]).save(paths[-1])
    evaluate.main([str(run), "--images", *paths])
    lines = capsys.readouterr().out.splitlines()
    right = [f"{path}: {label} " in line for path, label, line in zip(paths, test.labels, lines)]
    assert len(lines) == 5 and sum(right) >= 4
    with pytest.raises(FileNotFoundError, match=r"no image at 'nowhere\.png'"):
        evaluate.main([str(run), "--images", paths[0], "nowhere.png"])


@pytest.mark.slow
def test_exported_files_answer_as_keras_does(run, capsys):
    export.main([str(run)])
    printed = capsys.readouterr().out
    assert "saved_model: largest difference from Keras" in printed
    assert "model.tflite: largest difference from Keras" in printed
    assert (run / "export" / "labels.txt").read_text().split() == list("0123456789")
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(run / "export" / "model.tflite"))
    interpreter.allocate_tensors()
    source, target = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    images = data.sample_images("digits", (16, 16, 1), Preprocessing())
    assert source["dtype"] == np.uint8 and tuple(source["shape"]) == (1, 16, 16, 1)
    labels, right = data.load("digits", 1).split("test").labels, 0
    for image, label in zip(images, labels):
        interpreter.set_tensor(source["index"], image[None])
        interpreter.invoke()
        probabilities = interpreter.get_tensor(target["index"])[0]
        assert probabilities.sum() == pytest.approx(1, abs=1e-3)
        right += probabilities.argmax() == label
    assert right >= 0.95 * len(images)


@pytest.mark.slow
def test_any_keras_file_is_evaluated_with_a_dataset(run, tmp_path):
    file = str(run / "model.keras")
    evaluate.main([file, "--dataset", "digits", "--out", str(tmp_path), "--split", "train"])
    assert json.loads((tmp_path / "report.json").read_text())["images"] == 1437
    with pytest.raises(ValueError, match="is no run, which has a data set: give a --dataset"):
        evaluate.main([file])
    with pytest.raises(ValueError, match="is no run, which has a folder: give an --out"):
        evaluate.main([file, "--dataset", "digits"])


def test_a_checkpoint_of_another_project_is_used_like_a_run(tmp_path, capsys, rng):
    """torchvision's numbers travel: its file, from its format, through both scripts."""
    model = VisionTransformer(32, 8, 24, 2, 3, 40, 10, name="small")
    randomise(model, rng, scale=0.2)
    model.preprocessing = numerics = Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    folder = tmp_path / "hf"
    save(model, folder, format="huggingface")
    evaluate.main([str(folder), "--dataset", "digits", "--out", str(tmp_path / "report")])
    digits = data.load("digits", 3).split("test")
    batches = data.eval_batches(digits, image_size=(32, 32), preprocessing=numerics, batch=360)
    logits, labels = evaluation.predict(model, batches)
    found = json.loads((tmp_path / "report" / "report.json").read_text())
    assert found["accuracy"] == pytest.approx((logits.argmax(axis=1) == labels).mean(), abs=0.01)
    export.main([str(folder), "--out", str(tmp_path / "export"), "--format", "litert"])
    assert "model.tflite: largest difference from Keras" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("train.py", ["--total_step", "5"], "Did you mean total_steps"),
        ("train.py", ["--dataset", "mnist"], "`dataset` must be one of 'digits'"),
        ("evaluate.py", ["nowhere"], "no run and no checkpoint at 'nowhere'"),
        ("export.py", ["nowhere"], "no run and no checkpoint at 'nowhere'"),
    ],
)
def test_faults_end_with_one_clear_line(tmp_path, script, arguments, message):
    from tests.helpers import ROOT

    done = run_script(ROOT / script, *arguments, check=False, cwd=tmp_path)
    assert done.returncode != 0
    assert message in done.stderr and "Traceback" not in done.stderr
