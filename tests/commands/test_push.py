"""Runs on a hub on loopback: what is uploaded, what the card says, and what is refused."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import yaml
from huggingface_hub import constants

import vit_keras
from tests.helpers import assert_close, randomize, to_numpy
from vit_keras import commands, config, weights
from vit_keras.models import VisionTransformer, with_joined_boxes
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.on("torch")
ADDRESS = "hf://ann/pets"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a complete run, as training leaves it."""
    folder = tmp_path_factory.mktemp("runs") / "pets"
    folder.mkdir()
    model = VisionTransformer(16, 8, 12, 1, 2, 16, 3, gelu="exact")
    randomize(model, np.random.default_rng(0)).class_names = ["cat", "dog", "owl"]
    weights.save_model(model, folder / "model.keras")
    settings = config.Config(name="pets", dataset="folder:photos", batch=24, total_steps=300)
    (folder / "config.yaml").write_text(config.dump_config(settings))
    (folder / "environment.json").write_text(json.dumps({"backend": "jax", "keras": "3.15.1"}))
    report = {"accuracy": 0.9375, "ece": 0.0125, "images": 64, "confusion": [[1]]}
    (folder / "report.json").write_text(json.dumps(report))
    return folder


def answer(path):
    images = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
    return to_numpy(vit_keras.open(path)(images))


def test_an_uploaded_run_is_the_run_in_both_forms(serve_hub, trained, monkeypatch, capsys):
    server = serve_hub({})
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    commands.run(["push", str(trained), ADDRESS, "--license", "apache-2.0", "--private"])
    assert capsys.readouterr().out.strip().startswith(f"{server.url}/ann/pets/commit/")
    assert len(server.commits) == 1 and server.created[0]["name"] == "pets"
    assert server.created[0].get("private") or server.created[0].get("visibility") == "private"
    names = {"README.md", "config.json", "model.keras", "model.safetensors"}
    assert {*names, "preprocessor_config.json"} <= {*server.files}
    labels = json.loads(server.files["config.json"])["id2label"]
    assert labels == {"0": "cat", "1": "dog", "2": "owl"}
    expected = answer(trained / "model.keras")
    np.testing.assert_array_equal(answer(f"{ADDRESS}/model.keras"), expected)
    assert_close(answer(ADDRESS), expected, rtol=2e-6)


def test_the_card_has_the_runs_own_numbers(trained, tmp_path, capsys):
    folder = tmp_path / "pets"
    commands.run(["push", str(trained), ADDRESS, "--license", "mit", "--out", str(folder)])
    assert "nothing was uploaded" in capsys.readouterr().out
    _, head, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    fields = yaml.safe_load(head)
    assert fields["license"] == "mit" and fields["pipeline_tag"] == "image-classification"
    rows = ("accuracy | 93.75%", "images | 64", "data set | folder:photos", "batch | 24")
    for row in (*rows, "total_steps | 300", "backend | jax", "mean | [0.5]"):
        assert f"| {row} |" in text
    assert "3 classes: cat, dog, owl." in text
    assert 'vit_keras.open("hf://ann/pets/model.keras")' in text and 'model="ann/pets"' in text
    with pytest.raises(ValueError, match="`folder` must be new or empty. Received: "):
        commands.run(["push", str(trained), ADDRESS, "--out", str(folder)])


def test_the_card_of_labels_has_their_thresholds(trained, tmp_path, capsys):
    run = shutil.copytree(trained, tmp_path / "run")
    model = vit_keras.open(run / "model.keras")
    model.task = Task("labels", thresholds=(0.5, 2e-7, 0.25))
    weights.save_model(model, run / "model.keras")
    report = {"average_precision": 0.75, "images_chose": "thresholds"}
    (run / "report.json").write_text(json.dumps(report))
    commands.run(["push", str(run), ADDRESS, "--dry_run"])
    _, head, text = capsys.readouterr().out.split("---\n", 2)
    assert "multi-label-image-classification" in yaml.safe_load(head)["tags"]
    assert "Each score of `classify` is the probability of one label." in text
    assert "at or above this probability: cat 0.5, dog 2e-07, owl 0.25." in text
    assert "| chosen by these images | thresholds |" in text


def test_the_card_of_boxes_has_their_average_precision(trained, tmp_path, capsys):
    run, changes = (
        shutil.copytree(trained, tmp_path / "run"),
        {"boxes": "tokens", "num_registers": 4},
    )
    model = with_joined_boxes(VisionTransformer(16, 8, 12, 1, 2, 16, 3, gelu="exact", **changes))
    weights.save_model(model, run / "model.keras")
    (run / "report.json").write_text(json.dumps({"ap": 0.4375, "ap50": 0.75, "images": 64}))
    commands.run(["push", str(run), ADDRESS, "--dry_run"])
    _, head, text = capsys.readouterr().out.split("---\n", 2)
    assert yaml.safe_load(head)["pipeline_tag"] == "object-detection"
    assert "| AP | 43.75% |" in text and 'detect = pipeline("object-detection", model="ann' in text


@pytest.mark.parametrize(
    ("route", "status", "message"),
    [
        ("/api/repos/create", 403, "did not accept the upload: 403"),
        ("/commit/", 409, "did not accept the upload: Client error '409 Conflict"),
        ("", None, "hf://ann/pets is public, so nothing was uploaded"),
    ],
)
def test_a_hubs_refusal_is_told(serve_hub, trained, monkeypatch, capsys, route, status, message):
    files = {} if route else {"README.md": b""}
    server = serve_hub(files)
    server.status = {route: status} if route else {}
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    assert commands.main(["push", str(trained), ADDRESS, *([] if route else ["--private"])]) == 1
    assert message in capsys.readouterr().err
    assert dict(server.files) == files


def test_faults_are_told_before_anything_is_sent(serve_hub, trained, tmp_path, monkeypatch, capsys):
    server = serve_hub({})
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.yaml").write_text((trained / "config.yaml").read_text())
    assert not pathlib.Path(constants.HF_TOKEN_PATH).exists()
    for run, address, message in (
        (trained, ADDRESS, "needs a write token"),
        (trained, f"{ADDRESS}@v1", "USER/NAME"),
        (unfinished, ADDRESS, "has no model.keras yet"),
    ):
        if run != trained:
            monkeypatch.setenv("HF_TOKEN", "hf_test")
        assert commands.main(["push", str(run), address]) == 1
        assert message in capsys.readouterr().err
    assert not server.requests
