"""A run's folder, its checkpoints, and going on after a stop."""

import dataclasses
import json

import keras
import numpy as np
import pytest

import train
from tests.helpers import ROOT, to_numpy
from vit_keras import runs
from vit_keras.cli import read
from vit_keras.models import VisionTransformer
from vit_keras.training import checkpoints
from vit_keras.training.loop import segments

DIGITS = read(str(ROOT / "configs" / "digits.yaml"))
SMALL = [
    *("--model.hidden_size", "16", "--model.num_layers", "2", "--model.num_heads", "2"),
    *("--model.mlp_dim", "16", "--model.dropout_rate", "0.2", "--batch", "32"),
    *("--total_steps", "7", "--eval_every", "3", "--checkpoint_every", "2"),
]


@pytest.mark.parametrize(
    ("start", "total", "every", "expected"),
    [
        (0, 9, 3, [(0, 3, 3)]),
        (0, 8, 3, [(0, 2, 3), (2, 3, 2)]),
        (4, 11, 3, [(1, 2, 2), (2, 3, 3), (3, 4, 2)]),
        (0, 2, 5, [(0, 1, 2)]),
        (6, 6, 3, []),
    ],
)
def test_segments_cover_the_steps_that_are_left(start, total, every, expected):
    found = segments(start, total, every)
    assert found == expected
    assert sum((s.last - s.first) * s.steps for s in found) == total - start


class Killed(Exception):
    pass


@pytest.mark.parametrize("kill_at", [3, 5])
def test_a_stopped_run_ends_as_if_it_had_not_been(tmp_path, monkeypatch, kill_at):
    train.main([*SMALL, "--workdir", str(tmp_path / "straight")])

    def save_and_die(model, folder, step, keep, save=checkpoints.save):
        save(model, folder, step, keep)
        if step >= kill_at:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save", save_and_die)
        with pytest.raises(Killed):
            train.main([*SMALL, "--workdir", str(tmp_path / "stopped")])
    train.main([*SMALL, "--workdir", str(tmp_path / "stopped")])
    straight, stopped = (
        np.load(tmp_path / name / "checkpoints" / "step_000000007" / "state.npz")
        for name in ("straight", "stopped")
    )
    assert straight.files == stopped.files
    for name in straight.files:
        np.testing.assert_array_equal(straight[name], stopped[name], err_msg=name)
    rows = json.loads((tmp_path / "stopped" / "metrics.json").read_text())
    assert [row["step"] for row in rows] == [3, 6, 7]
    kept = sorted(path.name for path in (tmp_path / "stopped" / "checkpoints").iterdir())
    assert kept == ["step_000000006", "step_000000007"]


def small_model(hidden_size=12):
    model = VisionTransformer(8, 4, hidden_size, 1, 3, 20, 5, channels=1, dropout_rate=0.1)
    model.compile(keras.optimizers.AdamW(1e-3), "mse", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    return model


def test_a_damaged_checkpoint_is_passed_over(rng, tmp_path):
    model = small_model()
    for step in (1, 2, 3):
        model.get_layer("head").bias.assign(np.full(5, step, "float32"))
        checkpoints.save(model, tmp_path, step, keep=3)
    newest = tmp_path / "step_000000003" / "state.npz"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1  # one bit
    newest.write_bytes(data)
    (tmp_path / "step_000000002" / "meta.json").write_text('{"step"')
    (tmp_path / ".partial-x").mkdir()
    other = small_model()
    with pytest.warns(UserWarning, match=r"step_00000000\d is damaged .*passed over"):
        assert checkpoints.restore(other, tmp_path) == 1
    np.testing.assert_array_equal(to_numpy(other.get_layer("head").bias.value), np.ones(5))
    assert not (tmp_path / ".partial-x").exists()


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    checkpoints.save(small_model(), tmp_path, 1, keep=1)
    with pytest.raises(ValueError, match="step_000000001' does not fit this run"):
        checkpoints.restore(small_model(hidden_size=24), tmp_path)


def test_a_folder_of_another_run_is_refused_and_kept(tmp_path):
    config = dataclasses.replace(DIGITS, workdir=str(tmp_path / "run"))
    run = runs.open_run(config)
    before = (run.folder / "config.yaml").read_text()
    assert runs.open_run(config).folder == run.folder  # its own: it goes on
    changed = dataclasses.replace(config.optimizer, learning_rate=0.5)
    with pytest.raises(ValueError, match=r"another run \(optimizer.learning_rate: 0.003 there"):
        runs.open_run(dataclasses.replace(config, optimizer=changed))
    environment = run.folder / "environment.json"
    environment.write_text(json.dumps({"backend": "theano"}))
    with pytest.raises(ValueError, match="a run on backend 'theano', and this one is on"):
        runs.open_run(config)
    assert (run.folder / "config.yaml").read_text() == before
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.jpg").write_bytes(b"x")
    with pytest.raises(ValueError, match="photos' exists, is not empty and is no run's folder"):
        runs.open_run(dataclasses.replace(config, workdir=str(other)))
    with pytest.raises(ValueError, match="`workdir` must be a folder"):
        runs.open_run(dataclasses.replace(config, workdir=str(other / "cat.jpg")))
    assert [path.name for path in other.iterdir()] == ["cat.jpg"]


def test_default_folder_follows_from_the_configuration():
    one, same = runs.default_workdir(DIGITS), runs.default_workdir(DIGITS)
    other = runs.default_workdir(dataclasses.replace(DIGITS, seed=1))
    assert one == same != other
    assert one.name.startswith(f"digits-{keras.backend.backend()}-")


def test_what_is_no_run_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run and no checkpoint at 'nowhere'"):
        runs.open_source("nowhere")
    with pytest.raises(FileNotFoundError, match="is no run's folder: it has no config.yaml"):
        runs.open_source(tmp_path)
    runs.open_run(dataclasses.replace(DIGITS, workdir=str(tmp_path / "run")))
    with pytest.raises(FileNotFoundError, match="has no model.keras yet"):
        runs.open_source(tmp_path / "run")
