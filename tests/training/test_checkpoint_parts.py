"""Checkpoints to which each process adds what it alone holds."""

import json

import numpy as np
import pytest

from tests.helpers import to_numpy
from tests.training.halves import Half, save_halves
from tests.training.small import small_config, small_model
from vit_keras.training import checkpoints
from vit_keras.training.records import NonFinite

pytestmark = pytest.mark.once


@pytest.fixture
def model(tmp_path):
    return small_model(small_config(tmp_path))


def draw(model, rng):
    for variable in (*model.weights, *model.optimizer.variables):
        if variable.dtype == "float32":
            variable.assign(rng.normal(size=variable.shape))


def values(model):
    return [to_numpy(v.value) for v in (*model.variables, *model.optimizer.variables)]


def test_parts_of_two_processes_make_one_state(tmp_path, model, rng):
    draw(model, rng)
    expected = values(model)
    (tmp_path / ".part-step_000000001-00001.npz").touch()  # of a process that was killed
    path = save_halves(model, tmp_path, 3)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    files = ["meta.json", "state.npz", "state_00001.npz"]
    assert sorted(file.name for file in path.iterdir()) == files
    with np.load(path / "state.npz") as first, np.load(path / "state_00001.npz") as second:
        kernels = [name for name in first.files if "@0:5,0:3" in name]
        assert len(kernels) == 3  # the kernel and its two moments
        assert sorted(second.files) == sorted(name.replace("0:5,", "5:16,") for name in kernels)
    draw(model, rng)
    assert checkpoints.restore(model, tmp_path) == 3
    for value, right in zip(values(model), expected):
        np.testing.assert_array_equal(value, right)


@pytest.mark.parametrize("damage", ["flip", "remove", "meta"])
def test_a_damaged_part_damages_its_checkpoint(tmp_path, model, rng, damage):
    draw(model, rng)
    save_halves(model, tmp_path, 1)
    expected = values(model)
    draw(model, rng)
    part = save_halves(model, tmp_path, 2) / "state_00001.npz"
    meta = part.with_name("meta.json")
    if damage == "flip":
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content)
    elif damage == "remove":
        part.unlink()
    else:
        content = json.loads(meta.read_text())
        del content["files"]
        meta.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="step_000000002 is damaged"):
        assert checkpoints.restore(model, tmp_path) == 1
    for value, right in zip(values(model), expected):
        np.testing.assert_array_equal(value, right)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"0:2,0:3": (2, 3)}, "its parts of a have 6 of 12 numbers"),
        ({"0:2,0:3": (2, 3), "1:3,0:3": (2, 3)}, "its parts of a have 9 of 12 numbers"),
        ({"0:2,0:3": (2, 3), "2:4,0:3": (1, 3)}, r"its part a@2:4,0:3 is \(1, 3\)"),
        ({"0:4": (4, 3)}, r"its part a@0:4 is \(4, 3\)"),
    ],
)
def test_parts_that_do_not_make_the_whole_are_named(tmp_path, parts, message):
    arrays = {f"a@{bounds}": np.ones(shape) for bounds, shape in parts.items()}
    np.savez(tmp_path / "state.npz", **arrays)
    meta = {"files": ["state.npz"], "variables": {"a": ["a", [4, 3], "float32"]}}
    state = checkpoints.State(tmp_path, meta)
    with state, pytest.raises(ValueError, match=message):
        state["a"]


def test_a_description_cannot_name_files_elsewhere(tmp_path, model):
    path = checkpoints.save(model, tmp_path, 1, keep=1)
    meta = json.loads((path / "meta.json").read_text())
    files = {"../other.npz": "ab", **meta["files"]}
    (path / "meta.json").write_text(json.dumps({**meta, "files": files, "checksums": {}}))
    with pytest.raises(ValueError, match=r"its meta.json names '\.\./other.npz' as a part"):
        checkpoints.read_meta(path)


def test_a_number_that_is_not_finite_stops_all_processes(tmp_path, model, rng):
    draw(model, rng)
    kernel = model.get_layer("head").kernel
    spoilt = np.array(to_numpy(kernel.value))
    spoilt[7, 1] = np.nan  # in the second one's rows
    kernel.assign(spoilt)
    gathered = []
    with pytest.raises(NonFinite, match="after update 3, .*head/kernel is not finite"):
        checkpoints.save(model, tmp_path, 3, 2, topology=Half(1, gathered))
    with pytest.raises(NonFinite, match="another process's slice of a variable is not finite"):
        checkpoints.save(model, tmp_path, 3, 2, topology=Half(0, gathered))
    assert not any(tmp_path.iterdir())
