"""The examples in cells run in their small form, and their notebooks hold the same cells."""

import json
import runpy

import numpy as np
import pytest
from sklearn.metrics import jaccard_score

from tests.helpers import assert_close, to_numpy
from tools.notebooks import notebook, scripts
from vit_keras import data

LOSSES = [2.302585, 2.218386, 2.329975, 2.284327, 2.236301, 2.289501]  # of each backend
SCRIPTS = {script.stem: script for script in scripts()}


@pytest.fixture
def run(monkeypatch):
    """Runs an example in its small form, and returns its names."""
    monkeypatch.setenv("SMALL", "1")
    monkeypatch.setenv("MPLBACKEND", "agg")
    return lambda name: runpy.run_path(str(SCRIPTS[name]))


@pytest.mark.once
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_notebook_has_the_cells_of_its_script(name):
    file = SCRIPTS[name].with_suffix(".ipynb")
    assert file.read_text() == notebook(SCRIPTS[name]), "run python -m tools.notebooks"
    head = "".join(json.loads(file.read_text())["cells"][1]["source"])
    assert head.startswith("%pip install") and 'setdefault("KERAS_BACKEND"' in head


@pytest.mark.on("torch")
def test_fine_tuning_learns_the_digits(run):
    names = run("fine_tune")
    assert names["history"]["val_accuracy"][-1] > 0.85
    images = next(iter(names["held_out"]))[0]
    expected = names["model"].predict(images, verbose=0)
    assert_close(names["again"].predict(images, verbose=0), expected, rtol=2e-6)


@pytest.mark.on("torch")
def test_search_finds_the_nearest_vectors_and_the_same_digits(run):
    names = run("features_and_search")
    vectors, present = names["table"].embeddings(range(len(names["table"])))
    assert present.all() and len(vectors) == 270
    assert_close(np.linalg.norm(vectors, axis=1), 1)
    embedder = names["embedder"]
    for answer in names["answers"][:5]:
        pixels = data.read_image(answer.query.path, 3)
        image = data.resize(pixels[None], (32, 32), embedder.preprocessing)
        query = embedder.run(embedder.preprocessing.normalize(image))[0]
        expected = np.sort(vectors @ query)[::-1][:5]
        found = [match.similarity for match in answer.matches]
        assert_close(found, expected)
    assert np.mean(names["nearest"][:, 0] == names["labels"]) > 0.7


@pytest.mark.nightly
@pytest.mark.on("torch")
def test_the_segmentation_head_finds_the_ink(run):
    names = run("segmentation_head")
    images, masks = names["test"]
    predicted = names["model"].predict(images, verbose=0).argmax(axis=-1)
    expected = jaccard_score(masks.ravel(), predicted.ravel(), average="macro")
    assert names["scores"]["iou"] == pytest.approx(expected, abs=1e-5)
    assert expected > 0.7


@pytest.mark.on("torch")
def test_inspection_shows_the_attention_of_the_photographs(run):
    names = run("inspection")
    attention, rollout = names["attention"], np.eye(names["attention"].shape[-1])
    for weights in attention.mean(axis=2).swapaxes(0, 1):  # (B, N, N), the mean over heads
        mixed = (weights + np.eye(weights.shape[-1])) / 2
        rollout = mixed @ rollout
    expected = rollout[:, 0, 1:].reshape(2, 4, 6)
    assert_close(names["views"].rollout, expected)
    assert names["similarity"].shape == (4, 6, 4, 6) and names["last"].shape == (2, 4, 6, 3)


def test_each_loop_has_the_losses_of_fit(run):
    names = run("own_training_loop")
    losses, expected = names["losses"], names["history"]["loss"]
    assert len(losses) == 6 and losses[-1] < losses[0]
    assert_close(losses[0], np.log(10))
    assert_close(losses, expected)
    np.testing.assert_allclose(losses, LOSSES, rtol=1e-4)  # those of the other backends
    for ours, theirs in zip(names["model"].weights, names["reference"].weights):
        pair = to_numpy(ours), to_numpy(theirs)
        assert_close(*pair, rtol=1e-5, floor=1, name=theirs.path)


@pytest.mark.nightly
@pytest.mark.once
def test_the_server_answers_as_keras_and_refuses_other_shapes(run):
    names = run("serve_saved_model")
    assert "vit_keras" not in names["SERVER"] and "keras" not in names["SERVER"]
    assert names["status"] == 200 and names["probabilities"].shape == (1, 10)
    assert_close(names["probabilities"], names["expected"], rtol=1e-5)
    assert names["expected"].max() > 0.2  # not the answer of any picture
    status, content = names["refused"]
    assert status == 400
    assert content["error"].startswith("`instances` must be [None, 32, 32, 3] pixels")
    status, content = names["again"]
    assert_close(content["predictions"], np.repeat(names["expected"], 2, 0), rtol=1e-5)
    assert names["server"].returncode is not None
