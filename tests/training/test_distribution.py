"""Several processes and devices train like one."""

import json
import os
import signal
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.helpers import ROOT, randomise, run_script
from tests.training.distribution_worker import ON
from tests.training.shards_of_state import assert_moved, assert_split
from vit_keras import data
from vit_keras.commands import run
from vit_keras.config import read_config as read
from vit_keras.models import Preprocessing, VisionTransformer
from vit_keras.training import checkpoint_files, checkpoints
from vit_keras.training.distribution import Topology
from vit_keras.training.loop import compile_model
from vit_keras.weights import open_model

BACKEND = keras.backend.backend()
DIGITS = read(str(ROOT / "configs" / "digits.yaml"))
WORKER = ROOT / "tests" / "training" / "distribution_worker.py"
RUN = [
    *("--config", str(ROOT / "configs" / "digits.yaml"), "--total_steps", "20"),
    *("--model.hidden_size", "16", "--model.num_layers", "1", "--model.num_heads", "2"),
    *("--model.mlp_dim", "16", "--batch", "32", "--batch_eval", "100", "--eval_every", "5"),
    *("--checkpoint_every", "4", "--keep_checkpoints", "9", "--optimizer.warmup_steps", "0"),
    *("--optimizer.learning_rate", "0.01"),
    *("--optimizer.grad_norm_clip", "0.1"),  # the norms are above it
    *("--augment.rotation_degrees", "0", "--augment.scale", "0", "--augment.shift", "0"),
]


RUNS = ("straight", "stopped")
SAID = "they go on from the newest checkpoint", "another task died", "JAX distributed service"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The folder of a run in one process on one device."""
    folder = tmp_path_factory.mktemp("distribution") / "alone"
    run(["train", *RUN, "--workdir", str(folder)])
    return folder


def free_port():
    """Finds three free ports in a row: torchrun's, and the two that other backends use."""
    for port in range(20_000 + os.getpid() % 9_000, 60_000, 7):
        with socket.socket() as a, socket.socket() as b, socket.socket() as c:
            try:
                for i, one in enumerate((a, b, c)):
                    one.bind(("127.0.0.1", port + i))
            except OSError:
                continue
            return port


def start_pair(task, folder, mode, arguments=RUN):
    """Starts two worker processes; returns their exit codes and their outputs."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"KERAS_BACKEND": BACKEND, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
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


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The folders that two processes leave: `straight`, and `stopped`, which was started again."""
    folder = tmp_path_factory.mktemp("pair")
    first = start_pair("several_runs", folder, "multi_worker")
    second = start_pair("one_run", folder, "multi_worker")
    assert second[0] == [0, 0], second[1]
    return folder, first, second


def weights(folder, step=20):
    """A checkpoint's model and optimizer, without keys' biases, whose gradients are rounding."""
    path = folder / "checkpoints" / f"step_{step:09d}"
    meta = checkpoint_files.read_meta(path)
    with checkpoint_files.State(path, meta) as state:
        names = [n for n in meta["variables"] if "metrics/" not in n]
        values = [(meta["variables"][n][0], state[n]) for n in names]
    return [(k, v) for k, v in values if "key/bias" not in k and "key_bias" not in k]


def assert_same_training(folder, alone):
    """Losses agree within 1e-5, also on held-out images, whose last batch is padded."""
    rows, expected = (json.loads((f / "metrics.json").read_text()) for f in (folder, alone))
    assert [row["step"] for row in rows] == [5, 10, 15, 20]
    for name in ("loss", "val_loss"):
        found, right = ([row[name] for row in some] for some in (rows, expected))
        np.testing.assert_allclose(found, right, rtol=1e-5)
    assert right[-1] < right[0] - 0.02  # a model that learns
    for name in ("accuracy", "val_accuracy"):
        found, right = ([row[name] for row in some] for some in (rows, expected))
        np.testing.assert_allclose(found, right, atol=1e-6)
    found, right = weights(folder), weights(alone)
    assert len(found) == len(right) > 40
    for (name, value), (_, expected) in zip(found, right):
        np.testing.assert_allclose(value, expected, atol=1e-4, err_msg=name)


def assert_identical(folder, other):
    for (name, found), (_, expected) in zip(weights(folder), weights(other)):
        np.testing.assert_array_equal(found, expected, err_msg=name)


def rows_of(folder):
    """The rows of metrics, without what the clock measured."""
    rows = json.loads((folder / "metrics.json").read_text())
    return [{k: v for k, v in row.items() if k != "images_per_second"} for row in rows]


@pytest.mark.slow
def test_two_processes_train_as_one(pair, alone):
    folder, _, _ = pair
    assert_same_training(folder / "straight", alone)
    with np.load(folder / "process_0.npz") as a, np.load(folder / "process_1.npz") as b:
        assert len(a.files) > 20
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.slow
def test_processes_stop_together_when_one_is_stopped_or_dies(pair):
    folder, (codes, outputs), _ = pair
    for output in outputs:  # both stopped after the same update when process 1 had SIGTERM
        assert "stopped by SIGTERM after update 9 of 20" in output
    assert (folder / "stopped" / "checkpoints" / "step_000000009").is_dir()
    assert codes[1] == -signal.SIGKILL and codes[0] not in (0, None)
    assert any(words in outputs[0] for words in SAID)


@pytest.mark.slow
def test_processes_that_are_started_again_end_like_undisturbed_ones(pair):
    folder, _, (_, outputs) = pair
    assert_identical(folder / "stopped", folder / "straight")
    model = open_model(folder / "stopped" / "model.keras")
    test = data.load("digits", 1).split("test")
    rows = [rows_of(folder / name) for name in RUNS]
    assert rows[0] == rows[1]
    held_out = {"image_size": (16, 16), "preprocessing": model.preprocessing, "batch": 360}
    ((images, labels),) = data.eval_batches(test, **held_out)
    right = model.predict_on_batch(np.asarray(images)).argmax(axis=1) == np.asarray(labels)
    assert rows[1][-1]["val_accuracy"] == pytest.approx(right.mean(), abs=1e-6)
    assert f"accuracy {100 * right.mean():.2f}%" in outputs[0]
    assert "accuracy" not in outputs[1]


@pytest.mark.slow
@pytest.mark.nightly  # `test_processes_stop_together_when_one_is_stopped_or_dies` loses the other
def test_a_run_whose_first_process_is_lost_ends_and_can_be_resumed(pair, tmp_path):
    codes, outputs = start_pair("lose_chief", tmp_path, "multi_worker")
    assert codes[0] == -signal.SIGKILL and codes[1] not in (0, None)
    assert any(words in outputs[1] for words in SAID), outputs[1]
    codes, outputs = start_pair("one_run", tmp_path, "multi_worker")
    assert codes == [0, 0], outputs
    assert_identical(tmp_path / "stopped", pair[0] / "straight")
    assert rows_of(tmp_path / "stopped") == rows_of(pair[0] / "straight")


@pytest.mark.slow
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
        assert_moved(tmp_path)


@pytest.mark.slow
@pytest.mark.nightly  # `test_devices_of_one_process_train_as_one` takes a checkpoint elsewhere
@pytest.mark.on("jax")
def test_a_run_in_shards_continues_on_fewer_devices(tmp_path):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    arguments = [*RUN, "--batch_eval", "96"]  # a multiple of the devices
    run_script(WORKER, "fewer_devices", tmp_path, *arguments, XLA_FLAGS=flags)
    run(["train", *arguments, "--workdir", str(tmp_path / "alone")])
    for name in ("fully_sharded", "four", "two", "one"):
        assert_same_training(tmp_path / name, tmp_path / "alone")
    assert_moved(tmp_path)


@pytest.mark.slow
@pytest.mark.nightly  # `test_devices_of_one_process_train_as_one` shares a model among devices
@pytest.mark.on("jax")
def test_two_processes_share_one_copy_of_the_model(tmp_path, alone):
    codes, outputs = start_pair("one_run", tmp_path, "model_parallel")
    assert codes == [0, 0], outputs
    assert_same_training(tmp_path / "stopped", alone)
    assert (tmp_path / "stopped" / "model.keras").is_file()


def test_padding_changes_no_evaluation(rng):
    """Compares four batches of 100 for 360 images with the mean over images of -Σ y log p."""
    model = randomise(VisionTransformer(8, 4, 8, 1, 2, 8, 10, channels=1), rng)
    compile_model(model, DIGITS)
    test = data.load("digits", 1).split("test")
    options = {"image_size": (8, 8), "preprocessing": Preprocessing()}
    padded = data.eval_batches(test, **options, batch=100, num_classes=10, pad=True)
    assert [len(weights) for _, _, weights in padded] == [100] * 4
    found = model.evaluate(padded, return_dict=True, verbose=0)
    ((images, labels),) = data.eval_batches(test, **options, batch=360)
    logits = model.predict_on_batch(np.asarray(images)).astype("float64")
    smooth = 0.9 * np.eye(10)[labels] + 0.1 / 10
    losses = (smooth * (np.log(np.exp(logits).sum(axis=1, keepdims=True)) - logits)).sum(axis=1)
    assert DIGITS.label_smoothing == 0.1
    assert found["loss"] == pytest.approx(losses.mean(), rel=1e-6)
    right = logits.argmax(axis=1) == np.asarray(labels)
    assert found["accuracy"] == pytest.approx(right.mean(), rel=1e-6)


@pytest.mark.nightly_on("jax", "tensorflow")  # their processes compile the step
def test_processes_must_see_the_same_checkpoints(tmp_path):
    class Apart(Topology):
        def gather(self, value):
            return np.array([value, 0])

    model = VisionTransformer(8, 4, 8, 1, 2, 8, 10, channels=1)
    compile_model(model, DIGITS)
    checkpoints.save(model, tmp_path, 3, keep=1)
    with pytest.raises(ValueError, match=r"see the same `workdir`.* at the steps \[0, 3\]"):
        checkpoints.restore(model, tmp_path, Apart())
