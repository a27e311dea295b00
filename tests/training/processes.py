"""Starts the processes of a run, and compares what they leave."""

import contextlib
import os
import re
import socket
import subprocess
import sys

import keras
import numpy as np

from tests.helpers import ROOT, assert_close
from tests.training.small import assert_same_state, by_path, rows_of

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


def free_port(count):
    """Finds free ports in a row: torchrun's, and one for each of `count` processes."""
    for port in range(20_000 + os.getpid() % 9_000, 60_000, 7):
        with contextlib.ExitStack() as stack:
            try:
                for i in range(count + 1):
                    one = stack.enter_context(socket.socket())
                    one.bind(("127.0.0.1", port + i))
            except OSError:
                continue
            return port


def start_processes(task, folder, mode, arguments=RUN, count=2):
    """Starts worker processes; returns their exit codes and their outputs."""
    port = str(free_port(count))
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared |= {"KERAS_BACKEND": keras.backend.backend(), "PYTHONPATH": str(ROOT)}
    shared |= {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, WORKER, task, folder, *arguments, "--distribution", mode]
    logs = [folder / f"{task}_{mode}_{rank}.log" for rank in range(count)]
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
