"""A run goes on with another number of processes, and with four as with one."""

import shutil
import signal

import numpy as np
import pytest

from tests.training.processes import (
    RUN,
    assert_identical,
    assert_same_training,
    rows_of,
    start_processes,
)
from vit_keras.commands import run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,  # tests/training/test_distribution.py has two processes
]


SHARDED = pytest.param(["--shard_state"], marks=pytest.mark.on("jax"))


@pytest.mark.parametrize("options", [[], SHARDED])
def test_four_processes_train_stop_and_go_on_as_one(tmp_path, alone, options):
    """Process 1 has SIGTERM, by which all stop with one checkpoint, and then SIGKILL."""
    arguments = [*RUN, *options]
    codes, outputs = start_processes("several_runs", tmp_path, "multi_worker", arguments, count=4)
    for output in outputs:
        assert "stopped by SIGTERM after update 9 of 20" in output
    assert codes[1] == -signal.SIGKILL and 0 not in codes
    codes, outputs = start_processes("one_run", tmp_path, "multi_worker", arguments, count=4)
    assert codes == [0] * 4, outputs
    assert_same_training(tmp_path / "straight", alone)
    assert_identical(tmp_path / "stopped", tmp_path / "straight")
    assert rows_of(tmp_path / "stopped") == rows_of(tmp_path / "straight")
    with np.load(tmp_path / "process_0.npz") as first:
        for rank in range(1, 4):
            with np.load(tmp_path / f"process_{rank}.npz") as other:
                for name in first.files:
                    np.testing.assert_array_equal(first[name], other[name])


def test_a_run_of_two_processes_goes_on_in_one_and_then_in_two(tmp_path, alone):
    """It trains on the same images in the same order: losses and weights stay those of one."""
    codes, outputs = start_processes("one_run", tmp_path, "multi_worker")
    assert codes == [0, 0], outputs
    (tmp_path / "stopped").rename(tmp_path / "two")
    go_on(tmp_path / "two", tmp_path / "one", 8)
    run(["train", *RUN, "--workdir", str(tmp_path / "one")])
    go_on(tmp_path / "one", tmp_path / "stopped", 12)
    codes, outputs = start_processes("one_run", tmp_path, "multi_worker")
    assert codes == [0, 0], outputs
    for name in ("one", "stopped"):
        assert_same_training(tmp_path / name, alone)
    assert_identical(tmp_path / "one", tmp_path / "two", step=8)


def go_on(folder, copy, step):
    """Copies a run as it was after an update."""
    shutil.copytree(folder, copy)
    for path in (copy / "checkpoints").glob("step_*"):
        if int(path.name.removeprefix("step_")) > step:
            shutil.rmtree(path)
