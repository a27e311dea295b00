"""Examples run in their small form, and notebooks and pictures are what their scripts make."""

import json
import runpy

import numpy as np
import pytest

from tests.helpers import assert_close, to_numpy
from tools.notebooks import notebook, scripts

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


# What an example finds in its small form, and the least of it.
FINDS = {
    "fine_tune": (lambda names: names["history"]["val_accuracy"][-1], 0.85),
    "features_and_search": (lambda names: np.mean(names["nearest"][:, 0] == names["labels"]), 0.7),
    "inspection": (lambda names: names["attention"].shape[-1], 1 + 4 * 6),
    "segmentation_head": (lambda names: names["scores"]["iou"], 0.7),
}


@pytest.mark.on("torch")
@pytest.mark.parametrize(
    "name", [*[*FINDS][:3], pytest.param("segmentation_head", marks=pytest.mark.nightly)]
)
def test_an_example_finds_what_it_is_about(run, name):
    found, least = FINDS[name]
    assert found(run(name)) >= least


def test_each_loop_has_the_losses_of_fit(run):
    names = run("own_training_loop")
    losses, expected = names["losses"], names["history"]["loss"]
    assert len(losses) == 6 and losses[-1] < losses[0]
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
