"""The folder of a run: what it holds, and which run it belongs to."""

import dataclasses
import json
import subprocess
import sys

import pytest

import vit_keras
from tests.helpers import ROOT
from vit_keras import experiments, runs
from vit_keras.commands import main
from vit_keras.config import read_config as read

DIGITS = read(str(ROOT / "configs" / "digits.yaml"))


@pytest.mark.once
def test_a_folder_of_another_run_is_refused_and_kept(tmp_path):
    config = dataclasses.replace(DIGITS, workdir=str(tmp_path / "run"))
    run = runs.open_run(config)
    before = (run.folder / "config.yaml").read_text()
    assert runs.open_run(config).folder == run.folder  # the same run continues
    moved = dataclasses.replace(config, distribution="auto", shard_state=True)
    assert runs.open_run(moved).config == moved  # elsewhere too
    runs.open_run(config)
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


@pytest.mark.once
def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run and no checkpoint at 'nowhere'"):
        vit_keras.open("nowhere")
    with pytest.raises(FileNotFoundError, match="which has no weights"):
        vit_keras.open(tmp_path)
    runs.open_run(dataclasses.replace(DIGITS, workdir=str(tmp_path / "run")))
    with pytest.raises(FileNotFoundError, match="has no model.keras yet"):
        runs.run_of(tmp_path / "run")


@pytest.mark.on("torch")
def test_a_second_process_in_a_runs_folder_is_told_whose_it_is(tmp_path):
    config = dataclasses.replace(DIGITS, workdir=str(tmp_path / "run"))
    holder = "import sys, dataclasses; from vit_keras import runs; from tests.training.test_runs "
    holder += "import DIGITS; config = dataclasses.replace(DIGITS, workdir=sys.argv[1]); "
    holder += "held = runs.claim(config); held.__enter__(); print('ready', flush=True); "
    holder += "sys.stdin.read()"
    command = [sys.executable, "-c", holder, config.workdir]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        message = f"'.*run' is in use: training by process {process.pid} on .* since 20.*Wait until"
        with pytest.raises(ValueError, match=message):
            experiments.train_run(config)
        with pytest.raises(SystemExit, match="1"):
            sys.exit(main(["train", "--config", "digits", "--workdir", config.workdir]))
        process.kill()  # the lock ends with its process
        process.wait()
    with runs.claim(config):
        assert runs.open_run(config).folder == tmp_path / "run"
        assert (tmp_path / "run" / ".lock").exists()


@pytest.mark.once
def test_a_folder_of_something_else_gets_no_lock(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    config = dataclasses.replace(DIGITS, workdir=str(tmp_path / "photos"))
    with pytest.raises(ValueError, match="must be empty or a run's folder.*photos"):
        runs.claim(config)
    assert [file.name for file in (tmp_path / "photos").iterdir()] == ["cat.jpg"]
