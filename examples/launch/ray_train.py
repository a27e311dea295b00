"""Trains on a Ray cluster, with one process for each worker of Ray Train (torch or JAX).

    python examples/launch/ray_train.py --workers 16 --gpus 1 --config scratch/small \
        --dataset folder:/shared/photos --workdir /shared/runs/photos

All machines must see the data and --workdir. If a worker or its machine is lost, Ray starts all
again, and the run goes on from its last checkpoint. The same command continues a stopped run. JAX
needs torch as well, which Ray Train brings the workers together with, and takes one worker for each
machine, with all of its GPUs.
"""

import argparse
import os
import pathlib

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train(options):
    """Runs in each worker, where Ray has set the variables of torchrun and opened a group."""
    import torch

    torch.distributed.destroy_process_group()  # the run opens its own, at another port
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    from vit_keras import commands

    commands.run(["train", "--distribution", "multi_worker", *options["arguments"]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, required=True, help="the number of processes")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs for each of them (0)")
    parser.add_argument("--workdir", required=True, help="the folder of the run")
    options, arguments = parser.parse_known_args()
    workdir = pathlib.Path(options.workdir).absolute()
    backend = os.environ.get("KERAS_BACKEND", "torch")
    ray.init(runtime_env={"env_vars": {"KERAS_BACKEND": backend}})
    scaling = {"num_workers": options.workers}
    if options.gpus:
        scaling |= {"use_gpu": True, "resources_per_worker": {"GPU": options.gpus}}
    TorchTrainer(
        train,
        train_loop_config={"arguments": [*arguments, "--workdir", str(workdir)]},
        scaling_config=ScalingConfig(**scaling),
        run_config=RunConfig(
            storage_path=str(workdir.parent / "ray"),  # of Ray's records
            failure_config=FailureConfig(max_failures=20),
        ),
    ).fit()


if __name__ == "__main__":
    main()
