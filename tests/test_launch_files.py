"""The launch files name the processes of a run, start them, and start a stopped run again."""

import json
import os
import runpy
import signal
import stat
import subprocess
import sys
import time
from unittest import mock

import keras
import numpy as np
import pytest
import yaml

from tests.helpers import ROOT
from vit_keras import commands
from vit_keras.training.distribution import find_cluster
from vit_keras.training.topologies import Cluster

pytestmark = pytest.mark.once
LAUNCH = ROOT / "examples" / "launch"
NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "KERAS_BACKEND")
# What stands in for the programs of a cluster, by their names.
RECORD = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["RECORD"], "a") as file:
    variables = {{name: os.environ.get(name) for name in {NAMES!r}}}
    file.write(json.dumps({{"arguments": sys.argv[1:], **variables}}) + "\\n")
sys.exit(int(os.environ.get("CODE", 0)))
"""
SRUN = """#!/bin/bash
code=0
for ((i = 0; i < SLURM_NTASKS; i++)); do
    SLURM_PROCID=$i SLURM_LOCALID=$((i % 2)) "$@" || code=$?
done
exit $code
"""
SCONTROL = """#!/bin/bash
if [ "$1" = show ]; then printf 'node7\\nnode8\\n'; else echo "$@" >> "$RECORD.queue"; fi
"""
CURL = """#!/bin/bash
case "${@: -1}" in
    */agent-worker-number) echo 2 ;;
    */worker-network-endpoints) echo "$ENDPOINTS" ;;
    *) exit 22 ;;
esac
"""


@pytest.fixture
def launch(tmp_path):
    """Runs a command where a cluster's programs are replaced; returns it and what was started."""
    programs = {"srun": SRUN, "scontrol": SCONTROL, "curl": CURL}
    programs |= dict.fromkeys(("python", "python3", "torchrun"), RECORD)
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(stat.S_IRWXU)
    record = tmp_path / "record"

    def start(command, **variables):
        path = f"{tmp_path}:{os.environ['PATH']}"
        environment = {"PATH": path, "RECORD": str(record), **variables}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        lines = record.read_text().splitlines() if record.exists() else []
        return done, [json.loads(line) for line in lines]

    return start


def cluster_of(monkeypatch, started, backend):
    """What a run reads from the variables of a process."""
    for name in NAMES[:-1]:
        monkeypatch.setenv(name, started[name] or "")
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    return find_cluster()


SLURM = {"SLURM_JOB_NODELIST": "node[7-8]", "SLURM_JOB_ID": "123456", "SLURM_NTASKS": "4"}


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_slurm_starts_a_process_for_each_gpu(launch, monkeypatch, tmp_path, backend):
    command = ["bash", LAUNCH / "slurm.sh", "--dataset", "folder:/a b", "--epochs", "3"]
    done, started = launch(command, **SLURM, KERAS_BACKEND=backend)
    assert done.returncode == 0, done.stderr
    assert [process["LOCAL_RANK"] for process in started] == ["0", "1", "0", "1"]
    port = 20_000 + 123_456 % 10_000
    for index, process in enumerate(started):
        words = ["-m", "vit_keras", "train", "--distribution", "multi_worker"]
        assert process["arguments"] == [*words, "--dataset", "folder:/a b", "--epochs", "3"]
        addresses = (f"node7:{port + 1}",) if backend == "jax" else ()
        assert cluster_of(monkeypatch, process, backend) == Cluster(index, 4, addresses)
    assert not (tmp_path / "record.queue").exists()


@pytest.mark.parametrize(("code", "queued"), [(143, ["requeue 123456\n"]), (1, [])])
def test_slurm_queues_a_run_again_that_sigterm_has_stopped(launch, tmp_path, code, queued):
    done, _ = launch(["bash", LAUNCH / "slurm.sh"], **SLURM, CODE=str(code))
    assert done.returncode == code
    assert [file.read_text() for file in tmp_path.glob("record.queue")] == queued


@pytest.mark.parametrize(
    "endpoints", ["10.0.0.5,10.0.0.6,10.0.0.7", "a:1:10.0.0.5,b:2:10.0.0.6,c:3:10.0.0.7"]
)
def test_a_worker_of_a_pod_finds_its_number_and_the_first(launch, monkeypatch, endpoints):
    command = ["bash", LAUNCH / "tpu_worker.sh", "--config", "pretrain/jft_l16"]
    done, (process,) = launch(command, ENDPOINTS=endpoints)
    assert done.returncode == 0, done.stderr
    assert process["arguments"][-2:] == ["--config", "pretrain/jft_l16"]
    assert process["KERAS_BACKEND"] == "jax"
    assert cluster_of(monkeypatch, process, "jax") == Cluster(2, 3, ("10.0.0.5:8476",))


def test_pods_of_a_jobset_start_torchrun(launch):
    """The fields were checked against the definition of JobSet; here, what they say together."""
    jobset = yaml.safe_load((LAUNCH / "jobset.yaml").read_text())
    (group,) = jobset["spec"]["replicatedJobs"]
    job = group["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    command = [*container["command"], *container["args"]]
    done, (process,) = launch(command, JOB_COMPLETION_INDEX="1")
    assert done.returncode == 0, done.stderr
    words = process["arguments"]
    value = lambda name: words[words.index(name) + 1]
    assert int(value("--nnodes")) == job["completions"] == job["parallelism"]
    assert value("--node-rank") == "1"
    assert value("--nproc-per-node") == container["resources"]["limits"]["nvidia.com/gpu"]
    name = jobset["metadata"]["name"]
    assert value("--master-addr") == f"{name}-{group['name']}-0-0.{name}"
    assert int(value("--shutdown-timeout")) < pod["terminationGracePeriodSeconds"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_workers_of_ray_train_one_run(monkeypatch, tmp_path, backend):
    """Each leaves the group that Ray has opened before it begins."""
    ray, torch, record = mock.MagicMock(), mock.MagicMock(), mock.MagicMock()
    for name in ("ray", "ray.train", "ray.train.torch"):
        monkeypatch.setitem(sys.modules, name, ray)
    monkeypatch.setitem(sys.modules, "torch", torch)
    record.attach_mock(torch.distributed.destroy_process_group, "leave")
    monkeypatch.setattr(commands, "run", record.run)
    words = ["ray_train.py", "--workers", "4", "--workdir", str(tmp_path / "run"), "--epochs", "3"]
    monkeypatch.setattr("sys.argv", words)
    monkeypatch.setenv("KERAS_BACKEND", backend)
    runpy.run_path(str(LAUNCH / "ray_train.py"), run_name="__main__")
    assert ray.init.call_args.kwargs == {"runtime_env": {"env_vars": {"KERAS_BACKEND": backend}}}
    assert ray.ScalingConfig.call_args.kwargs == {"num_workers": 4}
    (train,), options = ray.TorchTrainer.call_args
    for rank in range(4):  # as Ray sets them in each worker
        values = {"RANK": rank, "LOCAL_RANK": rank % 2, "WORLD_SIZE": 4}
        values |= {"MASTER_ADDR": "10.0.0.5", "MASTER_PORT": 40000}
        started = {name: str(value) for name, value in values.items()}
        monkeypatch.setenv("MASTER_PORT", "40000")
        train(options["train_loop_config"])
        assert os.environ["MASTER_PORT"] == "40001"
        addresses = ("10.0.0.5:40002",) if backend == "jax" else ()
        found = cluster_of(monkeypatch, started | {"MASTER_PORT": "40001"}, backend)
        assert found == Cluster(rank, 4, addresses)
    expected = ["train", "--distribution", "multi_worker", "--epochs", "3", *words[3:5]]
    assert record.mock_calls == [mock.call.leave(), mock.call.run(expected)] * 4


RUN = """--total_steps 300 --eval_every 300 --checkpoint_every 10 --batch 16 --batch_eval 360
--model.num_layers 1 --optimizer.warmup_steps 2 --kernels default --config digits --workdir"""


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_torchrun_starts_a_run_again_that_loses_a_worker(tmp_path, backend):
    """On loopback, both workers begin again at the last checkpoint, and end with the same bits."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": backend}
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # or new processes read old addresses
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "--max-restarts", "1", "-m", "vit_keras", "train"]
    command += ["--distribution", "multi_worker", *RUN.split()]
    straight, other = tmp_path / "straight", tmp_path / "other"
    subprocess.run([*command, str(straight)], env=environment, check=True)
    job = subprocess.Popen([*command, str(other)], env=environment)
    while job.poll() is None and not any((other / "checkpoints").glob("step_*")):
        time.sleep(0.05)
    owner = (other / ".lock").read_text()  # which names the process that has the folder
    os.kill(int(owner.split("process ")[1].split()[0]), signal.SIGKILL)
    assert job.wait() == 0
    paths = (run / "checkpoints" / "step_000000300" / "state.npz" for run in (straight, other))
    one, two = map(np.load, paths)
    for name in one.files:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)
