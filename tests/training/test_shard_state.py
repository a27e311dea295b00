"""How `shard_state` splits variables over devices, and what processes write of it."""

import shutil
import signal
import types

import numpy as np
import pytest

from tests.training.kill import model_differences
from tests.training.processes import (
    RUN,
    assert_identical,
    assert_same_training,
    start_processes,
)
from vit_keras.commands import run
from vit_keras.training import checkpoints
from vit_keras.training.distribution import on_jax

pytestmark = pytest.mark.on("jax")


@pytest.mark.parametrize(
    ("path", "shape", "model_devices", "axes"),
    [
        ("a/query/kernel", (768, 12, 64), 1, ("batch", None, None)),
        ("a/query/kernel", (768, 12, 64), 2, ("batch", "model", None)),
        ("a/out/kernel", (12, 64, 768), 2, ("model", None, "batch")),
        ("a/Dense_1/kernel", (3072, 768), 1, ("batch", None)),
        ("a/Dense_1/kernel", (3072, 768), 2, ("model", "batch")),
        ("head/kernel", (768, 21843), 1, ("batch", None)),  # 8 divides 768 alone
        ("a/odd/kernel", (1001, 203), 1, (None, None)),
        ("posembed_input/pos_embedding", (1, 197, 768), 1, (None, None, "batch")),
        ("a/square/kernel", (128, 128), 1, ("batch", None)),  # the first of two equal ones
        ("a/LayerNorm_0/gamma", (8192,), 1, (None,)),  # below 2¹⁴ numbers
    ],
)
def test_the_state_is_split_along_the_largest_dimension_that_divides(
    path, shape, model_devices, axes
):
    devices = [f"cpu:{i}" for i in range(8)]
    if model_devices > 1:
        made = on_jax.model_parallel(devices, model_devices, shard_state=True)
    else:
        made = on_jax.fully_sharded(devices)
    variable = types.SimpleNamespace(path=path, shape=shape)
    assert made.get_variable_layout(variable).axes == axes
    assert made.num_model_replicas == 8 // model_devices


@pytest.mark.slow
@pytest.mark.nightly  # tests/training/test_checkpoint_parts.py writes the parts of two processes
def test_two_processes_share_the_state_and_its_checkpoints(tmp_path, alone):
    sharded = [*RUN, "--shard_state"]
    codes, outputs = start_processes("several_runs", tmp_path, "multi_worker", sharded)
    assert codes[1] == -signal.SIGKILL, outputs
    codes, outputs = start_processes("one_run", tmp_path, "multi_worker", sharded)
    assert codes == [0, 0], outputs
    assert_same_training(tmp_path / "straight", alone)
    assert_identical(tmp_path / "stopped", tmp_path / "straight")
    last = tmp_path / "straight" / "checkpoints" / "step_000000020"
    with np.load(last / "state_00001.npz") as state:
        assert len(state.files) > 20 and all("@" in name for name in state.files)
    step = tmp_path / "stopped" / "checkpoints" / last.name
    (converted := tmp_path / "converted").mkdir()
    run(["convert", str(step), str(converted / "model.keras")])
    assert model_differences(tmp_path / "stopped", converted) == []
    shutil.copytree(tmp_path / "straight", tmp_path / "one")
    shutil.rmtree(tmp_path / "one" / "checkpoints" / last.name)
    run(["train", *RUN, "--workdir", str(tmp_path / "one")])  # from step 16, in one process
    assert_same_training(tmp_path / "one", alone)


@pytest.mark.slow
@pytest.mark.nightly  # tests/faults/saves.py kills both at every system call of a save
def test_two_processes_that_are_killed_in_a_save_go_on(tmp_path):
    (straight := tmp_path / "straight").mkdir()
    sharded = [*RUN, "--shard_state"]
    codes, outputs = start_processes("one_run", straight, "multi_worker", sharded)
    assert codes == [0, 0], outputs
    for killed, steps in ((1, range(4, 8)), (0, range(8, 12))):  # the best has one too
        codes, outputs = start_processes("die_in_a_save", tmp_path, "multi_worker", sharded)
        assert codes[killed] == -signal.SIGKILL and codes[1 - killed] not in (0, None), outputs
        path = checkpoints.newest(tmp_path / "stopped" / "checkpoints")
        assert int(path.name.removeprefix("step_")) in steps
    codes, outputs = start_processes("die_in_a_save", tmp_path, "multi_worker", sharded)
    assert codes == [0, 0], outputs
    assert_identical(tmp_path / "stopped", straight / "stopped")
    left = {path.name[:6] for path in (tmp_path / "stopped" / "checkpoints").iterdir()}
    assert left == {"step_0"}
