"""Several processes and devices train like one, and a run goes on with another number of them."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest

import vit_keras
from tests.helpers import ROOT, assert_close, run_script
from tests.training.distribution_worker import ON
from tests.training.small import assert_same_state, by_path, copy_as_killed, rows_of
from vit_keras import data
from vit_keras.commands import run

WORKER = ROOT / "tests" / "training" / "distribution_worker.py"
RUN = [
    *("--config", str(ROOT / "configs" / "digits.yaml"), "--total_steps", "20"),
    *("--model.hidden_size", "16", "--model.num_layers", "1", "--model.num_heads", "2"),
    *("--model.mlp_dim", "16", "--batch", "32", "--batch_eval", "100", "--eval_every", "5"),
    *("--checkpoint_every", "4", "--keep_checkpoints", "9", "--optimizer.warmup_steps", "0"),
    *("--optimizer.learning_rate", "0.01", "--kernels", "default"),
    *("--optimizer.grad_norm_clip", "0.1"),  # the norms are above it
    *("--augment.rotation_degrees", "0", "--augment.scale", "0", "--augment.shift", "0"),
]


def free_port():
    """Finds three free ports in a row: torchrun's, and one for each process."""
    for port in range(20_000 + os.getpid() % 9_000, 60_000, 7):
        with contextlib.ExitStack() as stack:
            try:
                for i in range(3):
                    one = stack.enter_context(socket.socket())
                    one.bind(("127.0.0.1", port + i))
            except OSError:
                continue
            return port


def start_processes(task, folder, mode, arguments=RUN):
    """Starts two worker processes; returns their exit codes and their outputs."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"KERAS_BACKEND": keras.backend.backend(), "PYTHONPATH": str(ROOT)}
    shared |= {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, WORKER, task, folder, *arguments, "--distribution", mode]
    logs = [folder / f"{task}_{mode}_{rank}.log" for rank in (0, 1)]
    processes = []
    for rank, log in enumerate(logs):
        variables = {**os.environ, **shared, "RANK": str(rank)}
        with open(log, "w") as file:
            options = {"cwd": ROOT, "env": variables, "stdout": file, "stderr": file}
            processes.append(subprocess.Popen(list(map(str, command)), **options))
    codes = [process.wait(timeout=500) for process in processes]
    return codes, [log.read_text() for log in logs]


def weights(folder, step=20):
    """A checkpoint's model and optimizer, without keys' biases, whose gradients are rounding."""
    arrays, skipped = by_path(folder, step), re.compile("key[/_]bias|^(loss|accuracy)/")
    return {path: array for path, array in arrays.items() if not skipped.search(path)}


def assert_same_training(folder, alone):
    """Losses agree within 1e-5, also on held-out images, whose last batch is padded."""
    rows, expected = map(rows_of, (folder, alone))
    assert [row["step"] for row in rows] == [5, 10, 15, 20]
    for name in ("loss", "val_loss"):
        found, right = ([row[name] for row in some] for some in (rows, expected))
        assert_close(found, right, rtol=1e-5)
    assert right[-1] < right[0] - 0.02  # a model that learns
    for name in ("accuracy", "val_accuracy"):
        found, right = ([row[name] for row in some] for some in (rows, expected))
        np.testing.assert_allclose(found, right, atol=1e-6)
    found, right = weights(folder), weights(alone)
    assert len(found) == len(right) > 40
    for name, expected in right.items():
        assert_close(found[name], expected, rtol=1e-4, floor=1, name=name)


def assert_identical(folder, other, step=20):
    assert_same_state(weights(folder, step), weights(other, step))


BACKEND = keras.backend.backend()
SAID = "they continue from the newest checkpoint", "another task died", "JAX distributed service"
HELD = {  # by one of four devices, of the kernels of query, out, head and Dense_0
    "model_parallel": ([16, 1, 8], [1, 8, 16], [8, 10], [16, 8]),
    "fully_sharded": ([4, 2, 8], [2, 8, 4], [4, 10], [4, 16]),
}
nightly, slow = pytest.mark.nightly, pytest.mark.slow


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    """The folder of a run in one process on one device."""
    folder = tmp_path_factory.mktemp("distribution") / "alone"
    run(["train", *RUN, "--workdir", str(folder)])
    return folder


def go_on(folder, *arguments, mode="multi_worker"):
    """Trains the run `stopped` in a folder to its end, in two processes."""
    codes, outputs = start_processes("one_run", folder, mode, [*RUN, *arguments])
    assert codes == [0, 0], outputs
    return outputs


def assert_equal_arrays(paths):
    first, *others = map(np.load, paths)
    assert len(first.files) > 20
    for other in others:
        assert other.files == first.files
        for name in first.files:
            np.testing.assert_array_equal(other[name], first[name])


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run in two processes that is never stopped."""
    folder = tmp_path_factory.mktemp("pair")
    codes, outputs = start_processes("straight_run", folder, "multi_worker")
    assert codes == [0, 0], outputs
    return folder / "straight"


@pytest.mark.nightly_on("tensorflow")
@slow
def test_two_processes_train_as_one(straight, alone):
    assert_same_training(straight, alone)
    assert_equal_arrays(straight.with_name(f"process_{rank}.npz") for rank in (0, 1))


@pytest.mark.nightly_on("tensorflow", "jax")
@slow
def test_processes_stop_together_and_end_like_undisturbed_ones(straight, tmp_path):
    """One of them has SIGTERM, by which both stop, and then SIGKILL."""
    codes, outputs = start_processes("stopped_run", tmp_path, "multi_worker")
    for output in outputs:
        assert "stopped by SIGTERM after update 9 of 20" in output
    assert (tmp_path / "stopped" / "checkpoints" / "step_000000009").is_dir()
    assert codes[1] == -signal.SIGKILL and codes[0] not in (0, None)
    assert any(words in outputs[0] for words in SAID)
    outputs = go_on(tmp_path)
    assert_identical(tmp_path / "stopped", straight)
    rows = rows_of(tmp_path / "stopped")
    assert rows == rows_of(straight)
    model = vit_keras.open(tmp_path / "stopped" / "model.keras")
    test = data.load("digits", 1).split("test")
    held_out = {"image_size": (16, 16), "preprocessing": model.preprocessing, "batch": 360}
    ((images, labels),) = data.eval_batches(test, **held_out)
    right = model.predict_on_batch(np.asarray(images)).argmax(axis=1) == np.asarray(labels)
    assert rows[-1]["val_accuracy"] == pytest.approx(right.mean(), abs=1e-6)
    assert f"accuracy {100 * right.mean():.2f}%" in outputs[0]
    assert "accuracy" not in outputs[1]


@slow
@nightly  # `test_processes_stop_together_and_end_like_undisturbed_ones` loses the other one
def test_a_run_whose_first_process_is_lost_ends_and_can_be_resumed(straight, tmp_path):
    codes, outputs = start_processes("lose_chief", tmp_path, "multi_worker")
    assert codes[0] == -signal.SIGKILL and codes[1] not in (0, None)
    assert any(words in outputs[1] for words in SAID), outputs[1]
    go_on(tmp_path)
    assert_identical(tmp_path / "stopped", straight)
    assert rows_of(tmp_path / "stopped") == rows_of(straight)


@slow
@pytest.mark.on("tensorflow", "jax")
def test_devices_of_one_process_train_as_one(tmp_path, alone):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    devices = {"XLA_FLAGS": flags} if BACKEND == "jax" else {}
    run_script(WORKER, "several_devices", tmp_path, *RUN, **devices)
    kinds = ON[BACKEND]
    for kind in kinds:
        assert_same_training(tmp_path / kind, alone)
    assert_identical(tmp_path / "resumed", tmp_path / kinds[-1])
    assert rows_of(tmp_path / "resumed") == rows_of(tmp_path / kinds[-1])
    if BACKEND == "jax":
        assert_split(tmp_path)
        moved = ["fully_sharded/checkpoints", "moved_0", "moved_1", "moved_2"]  # 4, 2, 1, 4 devices
        assert_equal_arrays(tmp_path / x / "step_000000020" / "state.npz" for x in moved)


def assert_split(folder):
    """Reads the shapes that one device holds of each run, as `several_devices` wrote them."""
    for kind, (query, out, head, hidden) in HELD.items():
        held = json.loads((folder / f"{kind}.json").read_text())
        block = "encoderblock_0/MultiHeadDotProductAttention_1"
        assert held[f"{block}/query/kernel"] == [query]
        assert held[f"{block}/out/kernel"] == [out]
        assert held["head/kernel"] == [head]
        assert held["encoderblock_0/LayerNorm_0/gamma"] == [[16]]
        slots = [shape for path, shape in held.items() if "Dense_0_kernel" in path]
        assert slots == [[hidden]] * 2  # its two moments


@slow
@nightly  # `test_devices_of_one_process_train_as_one` shares a model among devices
@pytest.mark.on("jax")
@pytest.mark.parametrize(
    ("mode", "options"), [("model_parallel", []), ("multi_worker", ["--shard_state"])]
)
def test_two_processes_share_one_copy_of_the_model(tmp_path, alone, mode, options):
    go_on(tmp_path, *options, mode=mode)
    assert_same_training(tmp_path / "stopped", alone)
    assert (tmp_path / "stopped" / "model.keras").is_file()


@slow
@nightly
def test_a_run_of_two_processes_goes_on_in_one_and_then_in_two(tmp_path, alone):
    """It trains on the same images in the same order: losses and weights stay those of one."""
    go_on(tmp_path)
    (tmp_path / "stopped").rename(tmp_path / "two")
    copy_as_killed(tmp_path / "two", tmp_path / "one", 8)
    run(["train", *RUN, "--workdir", str(tmp_path / "one")])
    copy_as_killed(tmp_path / "one", tmp_path / "stopped", 12)
    go_on(tmp_path)
    for name in ("one", "stopped"):
        assert_same_training(tmp_path / name, alone)
    assert_identical(tmp_path / "one", tmp_path / "two", step=8)
