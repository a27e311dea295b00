"""Launchers that start a run again when it has lost a worker."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.helpers import ROOT
from tests.test_launch_files import LAUNCH, RUN, cluster_of
from vit_keras.training.distribution import Cluster

pytestmark = pytest.mark.once
# What stands in for Ray, which sets these variables in each worker, for torch, and for the command.
RAY = """
import json, os, sys, types

def init(runtime_env):
    os.environ.update(runtime_env["env_vars"])

class TorchTrainer:
    def __init__(self, train, train_loop_config, **options):
        self.train, self.config, self.options = train, train_loop_config, options

    def fit(self):
        count = self.options["scaling_config"].num_workers
        for rank in range(count):
            values = {"RANK": rank, "LOCAL_RANK": rank % 2, "WORLD_SIZE": count}
            values |= {"MASTER_ADDR": "10.0.0.5", "MASTER_PORT": 40000}
            os.environ.update({name: str(value) for name, value in values.items()})
            self.train(self.config)

def record(arguments=None):
    with open(os.environ["RECORD"], "a") as file:
        file.write(json.dumps({**os.environ, "arguments": arguments}) + "\\n")

def module(name, **members):
    sys.modules[name] = types.SimpleNamespace(__path__=[], **members)
    return sys.modules[name]

plain = types.SimpleNamespace
module("ray.train", ScalingConfig=plain, RunConfig=plain, FailureConfig=plain)
module("ray.train.torch", TorchTrainer=TorchTrainer)
module("torch", distributed=plain(destroy_process_group=record))
module("vit_keras", commands=module("vit_keras.commands", run=record))
"""


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_workers_of_ray_train_one_run(monkeypatch, tmp_path, backend):
    """Each leaves the group that Ray has opened before it begins."""
    (tmp_path / "ray.py").write_text(RAY)
    record, folder = tmp_path / "record", str(tmp_path / "run")
    command = [sys.executable, LAUNCH / "ray_train.py", "--workers", "4", "--workdir", folder]
    variables = {"PYTHONPATH": str(tmp_path), "KERAS_BACKEND": backend, "RECORD": str(record)}
    subprocess.run([*command, "--epochs", "3"], env=variables, check=True)
    processes = [json.loads(line) for line in record.read_text().splitlines()]
    assert [process["arguments"] for process in processes[::2]] == [None] * 4
    for index, process in enumerate(processes[1::2]):
        words = ["train", "--distribution", "multi_worker", "--epochs", "3", "--workdir", folder]
        assert process["arguments"] == words and process["KERAS_BACKEND"] == backend
        addresses = ("10.0.0.5:40002",) if backend == "jax" else ()
        assert cluster_of(monkeypatch, process, backend) == Cluster(index, 4, addresses)
        assert process["MASTER_PORT"] == "40001"


def torchrun():
    options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    options += ["-m", "vit_keras", "train", "--distribution", "multi_worker"]
    return [sys.executable, "-m", "torch.distributed.run", *options]


def ray_train():
    pytest.importorskip("ray")
    return [sys.executable, str(LAUNCH / "ray_train.py"), "--workers", "2"]


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize("launcher", [torchrun, ray_train])
def test_a_run_that_loses_a_worker_is_started_again(tmp_path, launcher, backend):
    """On loopback, both workers begin again at the last checkpoint, and end with the same bits."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": backend}
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # or new processes read old addresses
    straight, other = tmp_path / "straight", tmp_path / "other"
    subprocess.run([*launcher(), *RUN.split(), str(straight)], env=environment, check=True)
    job = subprocess.Popen([*launcher(), *RUN.split(), str(other)], env=environment)
    while job.poll() is None and not any((other / "checkpoints").glob("step_*")):
        time.sleep(0.05)
    os.kill(first := chief(other), signal.SIGKILL)
    assert job.wait() == 0 and chief(other) != first
    paths = (run / "checkpoints" / "step_000000300" / "state.npz" for run in (straight, other))
    ends = [np.load(path) for path in paths]
    for name in ends[0].files:
        np.testing.assert_array_equal(ends[0][name], ends[1][name], err_msg=name)


def chief(run):
    """The number of the process that has, or had, the run's folder."""
    return int((run / ".lock").read_text().split("process ")[1].split()[0])
