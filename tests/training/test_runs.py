"""The folder of a run: what it holds, and which run it belongs to."""

import dataclasses
import json

import keras
import pytest

from tests.helpers import ROOT
from vit_keras import runs
from vit_keras.config import read_config as read

DIGITS = read(str(ROOT / "configs" / "digits.yaml"))


def test_a_folder_of_another_run_is_refused_and_kept(tmp_path):
    config = dataclasses.replace(DIGITS, workdir=str(tmp_path / "run"))
    run = runs.open_run(config)
    before = (run.folder / "config.yaml").read_text()
    assert runs.open_run(config).folder == run.folder  # the same run continues
    changed = dataclasses.replace(config.optimizer, learning_rate=0.5)
    with pytest.raises(ValueError, match=r"another run \(optimizer.learning_rate: 0.003 there"):
        runs.open_run(dataclasses.replace(config, optimizer=changed))
    environment = run.folder / "environment.json"
    environment.write_text(json.dumps({"backend": "theano"}))
    with pytest.raises(ValueError, match="continues on the backend that began it, 'theano'"):
        runs.open_run(config)
    assert (run.folder / "config.yaml").read_text() == before
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.jpg").write_bytes(b"x")
    with pytest.raises(ValueError, match="photos', which holds other files"):
        runs.open_run(dataclasses.replace(config, workdir=str(other)))
    with pytest.raises(ValueError, match="`workdir` must be a folder"):
        runs.open_run(dataclasses.replace(config, workdir=str(other / "cat.jpg")))
    assert [path.name for path in other.iterdir()] == ["cat.jpg"]


def test_the_default_folder_depends_on_the_configuration():
    one, same = runs.default_workdir(DIGITS), runs.default_workdir(DIGITS)
    other = runs.default_workdir(dataclasses.replace(DIGITS, seed=1))
    assert one == same != other
    assert one.name.startswith(f"digits-{keras.backend.backend()}-")


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run and no checkpoint at 'nowhere'"):
        runs.open_source("nowhere")
    with pytest.raises(FileNotFoundError, match="is not a run's folder: it has no config.yaml"):
        runs.open_source(tmp_path)
    runs.open_run(dataclasses.replace(DIGITS, workdir=str(tmp_path / "run")))
    with pytest.raises(FileNotFoundError, match="has no model.keras yet"):
        runs.open_source(tmp_path / "run")
