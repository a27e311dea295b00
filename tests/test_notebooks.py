"""The examples in cells run in their small form, and their notebooks hold the same cells."""

import json
import runpy

import numpy as np
import pytest

from tools.notebooks import notebook, scripts

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
    np.testing.assert_allclose(names["again"].predict(images, verbose=0), expected, atol=1e-6)
