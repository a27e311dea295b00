"""Checkpoints are whole and exact to the bit, whatever goes wrong while they are written."""

import errno
import os
import resource

import keras
import numpy as np
import pytest

from tests.helpers import killed_before, to_numpy
from tests.training.small import small_config, small_model
from vit_keras.training import checkpoints


@pytest.fixture
def model(tmp_path):
    return small_model(small_config(tmp_path))


def set_bias(model, value):
    model.get_layer("head").bias.assign(np.full(3, value, "float32"))


def bias(model):
    return to_numpy(model.get_layer("head").bias)[0]


@pytest.mark.once
def test_a_damaged_checkpoint_is_skipped(tmp_path, model):
    for step in (1, 2, 3, 4):
        set_bias(model, step)
        checkpoints.save(model, tmp_path, step, keep=4)
    newest = tmp_path / "step_000000004" / "state.npz"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1  # one bit
    newest.write_bytes(data)
    (tmp_path / "step_000000003" / "meta.json").write_text('{"step"')
    (tmp_path / "step_000000002" / "state.npz").unlink()
    (tmp_path / ".partial-x").mkdir()
    with pytest.warns(
        UserWarning, match=r"step_00000000\d is damaged .*the one before it is used"
    ) as warned:
        assert checkpoints.restore(model, tmp_path) == 1
    assert len(warned) == 3 and bias(model) == 1.0
    assert not (tmp_path / ".partial-x").exists()
    set_bias(model, 2)
    checkpoints.save(model, tmp_path, 2, keep=1)  # the damaged later ones do not count
    set_bias(model, 0)
    with pytest.warns(UserWarning, match="damaged"):
        assert checkpoints.restore(model, tmp_path) == 2
    assert bias(model) == 2.0


@pytest.mark.once
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"step": 60', '"step": 40'),
        lambda text: text.replace('"step": 60', '"step": 70'),
        lambda text: text.replace('"step": 60', '"step": null'),
        lambda text: text.replace('"best": null', '"best": {"step": 1}'),
        lambda text: "[]",
        lambda text: "5",
        lambda text: "null",
        lambda text: "",
    ],
)
def test_a_changed_description_is_passed_over(tmp_path, model, change):
    for step in (50, 60):
        set_bias(model, step)
        checkpoints.save(model, tmp_path, step, keep=2)
    meta = tmp_path / "step_000000060" / "meta.json"
    changed = change(meta.read_text())
    assert changed != meta.read_text()
    meta.write_text(changed)
    with pytest.warns(UserWarning, match="step_000000060 is damaged .*the one before it is used"):
        assert checkpoints.restore(model, tmp_path) == 50
    assert bias(model) == 50.0


@pytest.mark.once
def test_a_checkpoint_of_another_model_is_refused(tmp_path, model):
    checkpoints.save(model, tmp_path, 1, keep=1)
    other = small_model(small_config(tmp_path, optimizer={"name": "sgd"}))
    with pytest.raises(ValueError, match="step_000000001', which does not fit this run"):
        checkpoints.restore(other, tmp_path)


def test_dropout_continues_where_it_was(tmp_path, model, rng):
    """Checkpoints hold dropout's seeds, which `.keras` files leave out."""
    images = rng.normal(size=(4, 4, 4, 1)).astype("float32")
    model(images, training=True)
    checkpoints.save(model, tmp_path, 1, keep=1)
    expected = to_numpy(model(images, training=True))
    assert np.abs(to_numpy(model(images, training=True)) - expected).max() > 1e-3
    checkpoints.restore(model, tmp_path)
    np.testing.assert_array_equal(to_numpy(model(images, training=True)), expected)


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


@pytest.mark.once
def test_the_newest_and_the_best_are_kept(tmp_path, model):
    kept = lambda: sorted(int(path.name[5:]) for path in tmp_path.iterdir())
    for step in range(1, 6):
        best = {"step": 2, "val_accuracy": 0.5} if step > 1 else None
        checkpoints.save(model, tmp_path, step, 2, best)
    assert kept() == [2, 4, 5]
    checkpoints.save(model, tmp_path, 6, 2, {"step": 6, "val_accuracy": 0.6})
    assert kept() == [5, 6]


@pytest.mark.once
@pytest.mark.parametrize("before", range(9))
def test_a_checkpoint_that_is_replaced_is_never_missing(tmp_path, model, before):
    """Whichever file operation is the last, there is a whole checkpoint of the step."""
    folder = tmp_path / "checkpoints"
    set_bias(model, 1)
    checkpoints.save(model, folder, 5, keep=1)
    set_bias(model, 2)
    with killed_before(before):
        checkpoints.save(model, folder, 5, keep=1)
    set_bias(model, 0)
    assert checkpoints.restore(model, folder) == 5
    assert bias(model) == (2.0 if before >= 6 else 1.0)
    assert [path.name for path in folder.iterdir()] == ["step_000000005"]


@pytest.mark.once
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, model, monkeypatch, number):
    set_bias(model, 1)
    checkpoints.save(model, tmp_path, 1, keep=1)

    def full(file, **arrays):
        file.write(b"begun")
        raise OSError(number, os.strerror(number))

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with monkeypatch.context() as patch, pytest.raises(OSError) as stopped:
        if number == errno.EFBIG:  # for real
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        else:
            patch.setattr(np, "savez", full)
        try:
            checkpoints.save(model, tmp_path, 2, keep=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert stopped.value.errno == number
    assert stopped.value.filename == str(tmp_path / "step_000000002")
    assert [path.name for path in tmp_path.iterdir()] == ["step_000000001"]
    set_bias(model, 0)
    assert checkpoints.restore(model, tmp_path) == 1 and bias(model) == 1.0
