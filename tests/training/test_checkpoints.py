"""Checkpoints are whole and exact to the bit, whatever goes wrong while they are written."""

import errno
import json
import os
import threading

import keras
import numpy as np
import pytest

from tests.helpers import killed_before, to_numpy
from tests.training.halves import Half, save_halves
from tests.training.small import assert_same_state, examples, small_config, small_model, state
from vit_keras.runs import NonFinite
from vit_keras.training import checkpoints
from vit_keras.training.checkpoints import CheckpointWriter

once = pytest.mark.once


@pytest.fixture
def model(tmp_path):
    return small_model(small_config(tmp_path))


def draw(model, rng):
    for variable in (*model.weights, *model.optimizer.variables):
        if variable.dtype == "float32":
            variable.assign(rng.normal(size=variable.shape))
    return values(model)


def values(model):
    return [to_numpy(v.value) for v in (*model.variables, *model.optimizer.variables)]


def assert_restored(model, folder, step, expected):
    assert checkpoints.restore(model, folder) == step
    for value, right in zip(values(model), expected, strict=True):
        np.testing.assert_array_equal(value, right)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@once
def test_parts_of_two_processes_make_one_state(tmp_path, model, rng):
    expected = draw(model, rng)
    (tmp_path / ".part-step_000000001-00001.npz").touch()  # of a process that was killed
    assert checkpoints.newest(tmp_path) is None
    path = save_halves(model, tmp_path, 3)
    assert names(tmp_path) == [path.name]
    assert names(path) == ["meta.json", "state.npz", "state_00001.npz"]
    with np.load(path / "state.npz") as first, np.load(path / "state_00001.npz") as second:
        kernels = [name for name in first.files if "@0:5,0:3" in name]
        assert len(kernels) == 3  # the kernel and its two moments
        assert sorted(second.files) == sorted(name.replace("0:5,", "5:16,") for name in kernels)
    draw(model, rng)
    assert_restored(model, tmp_path, 3, expected)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # one bit
    path.write_bytes(content)


def edit(**fields):
    def change(path):
        content = json.loads(path.read_text()) | fields
        path.write_text(json.dumps({n: v for n, v in content.items() if v != "left out"}))

    return change


DAMAGE = [
    ("state.npz", flip),
    ("state_00001.npz", flip),
    ("state.npz", os.remove),
    ("state_00001.npz", os.remove),
    ("meta.json", lambda path: path.write_text('{"step"')),
    ("meta.json", lambda path: path.write_text("[]")),
    ("meta.json", edit(step=40)),
    ("meta.json", edit(step=None)),
    ("meta.json", edit(best={"step": 1})),
    ("meta.json", edit(files="left out")),
    ("meta.json", edit(checksums={}, files={"../other.npz": "ab", "state.npz": "cd"})),
]


@once
def test_a_damaged_checkpoint_is_passed_over(tmp_path, model, rng):
    expected = draw(model, rng)
    save_halves(model, tmp_path, 50)
    for file, damage in DAMAGE:
        draw(model, rng)
        damage(save_halves(model, tmp_path, 60) / file)
        with pytest.warns(UserWarning, match="step_000000060 is damaged .*earlier one is used"):
            assert_restored(model, tmp_path, 50, expected)
    (tmp_path / ".partial-x").mkdir()
    checkpoints.save(model, tmp_path, 55, keep=1)  # the damaged later one does not count
    assert names(tmp_path) == [".partial-x", "step_000000055", "step_000000060"]
    with pytest.warns(UserWarning, match="damaged"):
        assert checkpoints.restore(model, tmp_path) == 55
    assert ".partial-x" not in names(tmp_path)


@once
@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"0:2,0:3": (2, 3)}, "its parts a@0:2,0:3 hold 6 of 12 numbers"),
        ({"0:2,0:3": (2, 3), "1:3,0:3": (2, 3)}, "hold 9 of 12 numbers"),
        ({"0:4": (4, 3)}, "hold 0 of 12 numbers"),
    ],
)
def test_parts_that_do_not_make_the_whole_are_named(tmp_path, parts, message):
    arrays = {f"a@{bounds}": np.ones(shape) for bounds, shape in parts.items()}
    np.savez(tmp_path / "state.npz", **arrays)
    meta = {"files": ["state.npz"], "variables": {"a": ["a", [4, 3], "float32"]}}
    with checkpoints.State(tmp_path, meta) as read, pytest.raises(ValueError, match=message):
        read["a"]


@once
def test_a_checkpoint_of_another_model_is_refused(tmp_path, model):
    checkpoints.save(model, tmp_path, 1, keep=1)
    other = small_model(small_config(tmp_path, optimizer={"name": "sgd"}))
    with pytest.raises(ValueError, match="step_000000001' cannot be read .it does not fit"):
        checkpoints.restore(other, tmp_path)


@once
def test_a_number_that_is_not_finite_stops_all_processes(tmp_path, model, rng):
    draw(model, rng)
    kernel, gathered = model.get_layer("head").kernel, []
    spoilt = np.array(to_numpy(kernel.value))
    spoilt[7, 1] = np.nan  # in the second one's rows
    kernel.assign(spoilt)
    for index, which in ((1, "head/kernel"), (0, "another process's slice of a variable")):
        with pytest.raises(NonFinite, match=f"after update 3, .*{which} is not finite"):
            checkpoints.save(model, tmp_path, 3, 2, topology=Half(index, gathered))
    assert not any(tmp_path.iterdir())


def test_bfloat16_is_restored_to_the_bit(tmp_path, rng):
    config = small_config(tmp_path, optimizer={"name": "sgd", "momentum_dtype": "bfloat16"})
    model = small_model(config)
    slot = next(v for v in model.optimizer.variables if v.dtype == "bfloat16")
    slot.assign(rng.normal(size=slot.shape))
    expected = to_numpy(keras.ops.cast(slot, "float32"))
    assert np.ptp(expected) > 1
    checkpoints.save(model, tmp_path, 1, keep=1)
    slot.assign(np.zeros(slot.shape))
    checkpoints.restore(model, tmp_path)
    np.testing.assert_array_equal(to_numpy(keras.ops.cast(slot, "float32")), expected)


@once
def test_the_newest_and_the_best_are_kept(tmp_path, model):
    kept = lambda: [int(name[5:]) for name in names(tmp_path)]
    for step in range(1, 6):
        rows = [{"step": 2, "val_accuracy": 0.5}] if step > 1 else []
        checkpoints.save(model, tmp_path, step, 2, rows)
    assert kept() == [2, 4, 5]
    checkpoints.save(model, tmp_path, 6, 2, [{"step": 6, "val_accuracy": 0.6}])
    assert kept() == [5, 6]


@once
def test_a_checkpoint_that_is_replaced_is_never_missing(tmp_path, model, rng):
    """Whichever file operation is the last, there is a whole checkpoint of the step."""
    for before in range(9):
        folder, states = tmp_path / str(before), [draw(model, rng)]
        checkpoints.save(model, folder, 5, keep=1)
        states.append(draw(model, rng))
        with killed_before(before):
            checkpoints.save(model, folder, 5, keep=1)
        draw(model, rng)
        assert_restored(model, folder, 5, states[before >= 6])
        assert names(folder) == ["step_000000005"]


class Held:
    """Holds `np.savez` back until `go` is set."""

    def __init__(self, monkeypatch):
        self.go, self.savez = threading.Event(), np.savez
        monkeypatch.setattr(np, "savez", self)

    def __call__(self, file, **arrays):
        assert self.go.wait(60)
        self.savez(file, **arrays)


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


@once
def test_an_error_waits_until_the_checkpoint_is_whole(tmp_path, model, monkeypatch):
    held = Held(monkeypatch)
    with pytest.raises(RuntimeError, match="of training"), CheckpointWriter() as writer:
        checkpoints.save(model, tmp_path, 1, keep=1, writer=writer)
        threading.Timer(0.2, held.go.set).start()
        raise RuntimeError("of training")
    assert checkpoints.newest(tmp_path).name == "step_000000001"


@once
def test_an_error_of_training_is_not_hidden_by_one_of_the_disk(tmp_path, model, monkeypatch):
    def full(file, **arrays):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", full)
    with (
        pytest.warns(UserWarning, match="last checkpoint is incomplete.*step_000000001"),
        pytest.raises(RuntimeError, match="of training"),
        CheckpointWriter() as writer,
    ):
        checkpoints.save(model, tmp_path, 1, keep=1, writer=writer)
        raise RuntimeError("of training")


@once
def test_a_part_that_a_killed_process_has_left_of_the_same_step_is_replaced(tmp_path, model, rng):
    checkpoints.save(model, tmp_path, 3, 2, topology=Half(1, []))  # is killed afterwards
    expected = draw(model, rng)
    save_halves(model, tmp_path, 3)
    draw(model, rng)
    assert_restored(model, tmp_path, 3, expected)
