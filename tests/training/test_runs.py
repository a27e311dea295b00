"""The folder of a run: which run it belongs to, and what is lost, damaged or killed in it."""

import dataclasses
import json
import shutil
import signal

import pytest

import vit_keras
from tests.helpers import ROOT, run_script
from tests.training import kill
from tests.training.small import Killed, small_run, without_rate
from vit_keras import runs
from vit_keras.commands import run
from vit_keras.config import read_config
from vit_keras.training import callbacks

DIGITS = read_config(str(ROOT / "configs" / "digits.yaml"))
TINY = [
    *("train", "--config", "digits", "--kernels", "default", "--batch", "16"),
    *("--model.hidden_size", "8", "--model.num_layers", "1", "--model.num_heads", "2"),
    *("--model.mlp_dim", "8", "--total_steps", "2", "--optimizer.warmup_steps", "0"),
]


def in_folder(folder, **fields):
    return dataclasses.replace(DIGITS, workdir=str(folder), **fields)


@pytest.mark.once
def test_a_folder_of_another_run_is_refused_and_kept(tmp_path):
    config = in_folder(tmp_path / "run")
    folder = runs.open_run(config).folder
    before = (folder / "config.yaml").read_text()
    assert runs.open_run(config).folder == folder  # the same run continues
    moved = dataclasses.replace(config, distribution="auto", shard_state=True)
    assert runs.open_run(moved).config == moved  # elsewhere too
    runs.open_run(config)
    changed = dataclasses.replace(config.optimizer, learning_rate=0.5)
    with pytest.raises(ValueError, match=r"another run \(optimizer.learning_rate: 0.003 there"):
        runs.open_run(dataclasses.replace(config, optimizer=changed))
    (folder / "environment.json").write_text(json.dumps({"backend": "theano"}))
    with pytest.raises(ValueError, match="continues on the backend that began it, 'theano'"):
        runs.open_run(config)
    assert (folder / "config.yaml").read_text() == before


@pytest.mark.once
def test_a_folder_without_a_run_is_named_and_left_alone(tmp_path):
    (other := tmp_path / "photos").mkdir()
    (other / "cat.jpg").write_bytes(b"x")
    for use in (runs.open_run, runs.claim):
        with pytest.raises(ValueError, match="photos', which holds other files"):
            use(in_folder(other))
    assert [path.name for path in other.iterdir()] == ["cat.jpg"]
    with pytest.raises(FileNotFoundError, match="no run or checkpoint at 'nowhere'"):
        vit_keras.open("nowhere")
    with pytest.raises(FileNotFoundError, match="which has no weights"):
        vit_keras.open(tmp_path)
    runs.open_run(in_folder(tmp_path / "run"))
    with pytest.raises(FileNotFoundError, match="has no model.keras yet"):
        runs.run_of(tmp_path / "run")


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and path.name[0] != ".")
    return {path: path.read_bytes() for path in files}


DAMAGE = {
    "[]": lambda path: path.write_text("[]"),
    "empty": lambda path: path.write_text(""),
    "without its first row": lambda path: path.write_text(
        json.dumps(json.loads(path.read_text())[1:])
    ),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.on("torch")
def test_damaged_metrics_are_refused_and_none_is_lost(tmp_path):
    """Of a complete run, and of one that was killed in its last evaluation."""

    class Dying(callbacks.RunCallbacks):
        def on_test_begin(self, logs=None):
            super().on_test_begin(logs)
            if self.step == 12:
                raise Killed

    _, _, expected = small_run(tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(callbacks, "RunCallbacks", Dying)
        small_run(tmp_path / "killed")
    for folder in (tmp_path / "whole", tmp_path / "killed"):
        path = folder / "metrics.json"
        kept = path.read_bytes()
        for damage in DAMAGE.values():
            damage(path)
            before = contents(folder)
            with pytest.raises(ValueError, match=r"metrics.json' .*Restore it, or begin another"):
                small_run(folder)
            assert contents(folder) == before
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            path.write_bytes(kept)
        small_run(folder)
        assert without_rate(json.loads(path.read_text())) == without_rate(expected)


EDITS = [
    ("dataset.json", lambda record: record["classes"].__setitem__(3, "four"), "classes"),
    ("dataset.json", lambda record: record["sha256"].update(test="0" * 64), "sha256"),
    ("environment.json", lambda record: record.update(backend="jax"), "backend"),
    ("environment.json", lambda record: record.update(kernels={"a": {}}), "kernels"),
]


@pytest.mark.on("torch")
def test_an_edited_record_is_damaged_and_no_change_of_the_data_or_the_machine(tmp_path):
    train = [*TINY, "--workdir", str(tmp_path)]
    run(train)
    for name, edit, field in EDITS:
        path = tmp_path / name
        kept = path.read_text()
        edit(record := json.loads(kept))
        path.write_text(json.dumps(record))
        with pytest.raises(ValueError, match=rf"{name}' is damaged \(its `{field}` was changed"):
            run(train)
        path.write_text(kept)
    (tmp_path / "dataset.json").rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError, match="dataset.json'. Restore it, or begin another run"):
        run(train)
    (tmp_path / "moved").rename(tmp_path / "dataset.json")
    run(train)


@pytest.mark.nightly
def test_forty_kills_at_random_change_nothing():
    """Half of them at a system call of a save."""
    run_script("-m", "tests.training.kill", "--kills", 40)


@pytest.mark.on("torch")
@pytest.mark.slow
def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path):
    """Kills it in a checkpoint, then presses Ctrl-C; `tests.training.kill` tries more moments."""
    done = run_script("-m", "tests.training.kill", "--stops", tmp_path)
    (whole, torn, interrupted, ended), differences = json.loads(done.stdout.splitlines()[-1])
    assert [whole[0], torn[0], interrupted[0], ended[0]] == [0, -signal.SIGKILL, 130, 0]
    partial = ".partial-step_000000007"
    assert torn[2] == [partial, f"{partial}.lock", "step_000000004"]
    assert "Traceback" not in interrupted[1]
    assert "the same command continues from there" in interrupted[1].splitlines()[-1]
    assert differences == []
    step = tmp_path / "straight" / "checkpoints" / f"step_{kill.STEPS:09d}"
    (converted := tmp_path / "converted").mkdir()  # with the average of the weights
    run(["convert", str(step), str(converted / "model.keras")])
    assert kill.model_differences(tmp_path / "straight", converted) == []
