"""Checkpoints that a thread writes while training goes on."""

import errno
import os
import threading
import time

import numpy as np
import pytest

from tests.helpers import to_numpy
from tests.training.halves import Half
from tests.training.small import (
    assert_same_state,
    examples,
    small_config,
    small_model,
    small_run,
    state,
    without_rate,
)
from vit_keras.training import checkpoints
from vit_keras.training.checkpoints import CheckpointWriter


@pytest.fixture
def model(tmp_path):
    return small_model(small_config(tmp_path))


class Held:
    """Holds `np.savez` back until `go` is set, for files whose names have a text."""

    def __init__(self, monkeypatch, text=""):
        self.text, self.go, self.seen = text, threading.Event(), []
        self.savez = np.savez
        monkeypatch.setattr(np, "savez", self)

    def __call__(self, file, **arrays):
        self.seen.append(("begin", file.name))
        if self.text in file.name:
            assert self.go.wait(60)
        self.savez(file, **arrays)
        self.seen.append(("end", file.name))


def test_a_checkpoint_has_the_state_of_its_step_whatever_is_trained_meanwhile(
    tmp_path, model, monkeypatch
):
    model.train_on_batch(*examples(8, 1))
    checkpoints.save(model, tmp_path / "straight" / "checkpoints", 5, keep=1)
    held = Held(monkeypatch)
    with CheckpointWriter() as writer:
        checkpoints.save(model, tmp_path / "beside" / "checkpoints", 5, keep=1, writer=writer)
        for seed in (2, 3):
            model.train_on_batch(*examples(8, seed))
        assert checkpoints.newest(tmp_path / "beside" / "checkpoints") is None
        held.go.set()
    saved = state(tmp_path / "beside", 5)
    assert_same_state(saved, state(tmp_path / "straight", 5))
    checkpoints.save(model, tmp_path / "after" / "checkpoints", 5, keep=1)
    after = state(tmp_path / "after", 5)
    assert sum(not np.array_equal(saved[name], after[name]) for name in saved) > 5


@pytest.mark.once
def test_an_error_waits_until_the_checkpoint_is_whole(tmp_path, model, monkeypatch):
    held = Held(monkeypatch)
    with pytest.raises(RuntimeError, match="of training"), CheckpointWriter() as writer:
        checkpoints.save(model, tmp_path, 1, keep=1, writer=writer)
        threading.Timer(0.2, held.go.set).start()
        raise RuntimeError("of training")
    assert checkpoints.newest(tmp_path).name == "step_000000001"


@pytest.mark.once
def test_an_error_of_training_is_not_hidden_by_one_of_the_disk(tmp_path, model, monkeypatch):
    monkeypatch.setattr(np, "savez", full)
    with (
        pytest.warns(UserWarning, match="last checkpoint is not whole.*step_000000001"),
        pytest.raises(RuntimeError, match="of training"),
        CheckpointWriter() as writer,
    ):
        checkpoints.save(model, tmp_path, 1, keep=1, writer=writer)
        raise RuntimeError("of training")


def full(file, **arrays):
    file.write(b"begun")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.nightly_on("tensorflow", "jax")
def test_a_disk_that_fills_while_training_goes_on_stops_the_run(tmp_path, monkeypatch):
    """The run is stopped at the next update or save, and later goes on to the same bits."""
    straight, rows = (small_run(tmp_path / "straight")[i] for i in (1, 2))
    savez, calls = np.savez, []

    def full_at_the_third(file, **arrays):
        calls.append(file.name)
        (full if len(calls) == 3 else savez)(file, **arrays)

    with monkeypatch.context() as patch, pytest.raises(OSError) as stopped:
        patch.setattr(np, "savez", full_at_the_third)
        small_run(tmp_path / "filled")
    assert stopped.value.errno == errno.ENOSPC and len(calls) == 3
    assert stopped.value.filename.endswith("step_000000006")
    left = [path.name for path in (tmp_path / "filled" / "checkpoints").iterdir()]
    assert sorted(left) == ["step_000000003", "step_000000004"]
    _, _, again = small_run(tmp_path / "filled")
    assert_same_state(state(tmp_path / "filled", 12), state(straight.folder, 12))
    assert without_rate(again) == without_rate(rows)


@pytest.mark.once
def test_the_first_process_waits_for_a_part_that_is_still_written(tmp_path, model, monkeypatch):
    """And takes none that a killed process has left of the same step."""
    gathered, held = [], Held(monkeypatch, ".part-")
    held.go.set()
    checkpoints.save(model, tmp_path, 3, 2, topology=Half(1, gathered))  # is killed afterwards
    held.go.clear()
    gathered.clear()
    kernel = model.get_layer("head").kernel
    kernel.assign(expected := np.random.default_rng(0).normal(size=kernel.shape).astype("float32"))
    second, first = (CheckpointWriter(Half(index, gathered)) for index in (1, 0))
    for writer in (second, first):
        checkpoints.save(model, tmp_path, 3, 2, topology=writer.topology, writer=writer)
    kernel.assign(np.zeros(kernel.shape))
    until(lambda: ("end", "state.npz") in [(event, name[-9:]) for event, name in held.seen])
    assert checkpoints.newest(tmp_path) is None
    held.go.set()
    until(lambda: (tmp_path / "step_000000003").exists())  # before any process waits
    second.wait()
    first.wait()
    assert checkpoints.restore(model, tmp_path) == 3
    np.testing.assert_array_equal(to_numpy(kernel.value), expected)


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
