"""A process of a distributed run: `distribution_worker.py TASK FOLDER TRAIN_ARGUMENTS`."""

import contextlib
import json
import os
import pathlib
import signal
import sys
from unittest import mock

import keras
import numpy as np

from tests.training.small import copy_as_killed
from vit_keras.commands import run
from vit_keras.config import parse_config
from vit_keras.models import from_model_config
from vit_keras.training import callbacks, checkpoints, distribution, topologies
from vit_keras.training.loop import compile_model
from vit_keras.training.topologies import Topology, read_variable

KINDS = {
    "data_parallel": ["--distribution", "data_parallel"],
    "model_parallel": ["--distribution", "model_parallel"],
    "fully_sharded": ["--distribution", "data_parallel", "--shard_state"],
    "both": ["--distribution", "model_parallel", "--shard_state"],
}
ON = {"tensorflow": ["data_parallel"], "jax": ["model_parallel", "fully_sharded"]}


class Trained(Exception):
    pass


@contextlib.contextmanager
def one_topology(arguments):
    """Opens the processes' connection once for several runs, and yields it."""
    with distribution.open(parse_config(arguments, default="")) as topology:
        again = mock.patch.object(distribution, "open", lambda _: contextlib.nullcontext(topology))
        kept = mock.patch.object(keras.utils, "clear_session")  # it would end the distribution
        with again, kept:
            yield topology


def straight_run(folder, arguments):
    """Trains a run to its end, and saves the weights of each process."""

    def keep(model, build):
        arrays = [read_variable(variable) for variable in model.trainable_variables]
        np.savez(folder / f"process_{topology.process_index}.npz", *arrays)
        raise Trained

    with (
        one_topology(arguments) as topology,
        mock.patch.object(topology, "local", keep),
        contextlib.suppress(Trained),
    ):
        run(["train", *arguments, "--workdir", str(folder / "straight")])


def stopped_run(folder, arguments):
    """Trains a run in which process 1 receives SIGTERM after update 8, and SIGKILL after 12."""

    def save(model, folder, step, *others, save=checkpoints.save):
        save(model, folder, step, *others)
        if topology.process_index == 1 and step == 8:
            os.kill(os.getpid(), signal.SIGTERM)
        if topology.process_index == 1 and step == 12:
            os.kill(os.getpid(), signal.SIGKILL)

    with one_topology(arguments) as topology, mock.patch.object(checkpoints, "save", save):
        for _ in range(2):
            with contextlib.suppress(SystemExit):
                run(["train", *arguments, "--workdir", str(folder / "stopped")])


def one_run(folder, arguments):
    run(["train", *arguments, "--workdir", str(folder / "stopped")])


def lose_chief(folder, arguments, on_update=callbacks.RunCallbacks.on_update):
    """A run whose process 0 receives SIGKILL after update 11, between two checkpoints."""

    def die_or_go_on(watch):
        if watch.step == 11 and watch.topology.is_chief:
            os.kill(os.getpid(), signal.SIGKILL)
        on_update(watch)

    with mock.patch.object(callbacks.RunCallbacks, "on_update", die_or_go_on):
        one_run(folder, arguments)


def several_devices(folder, arguments):
    """On several devices of one process: a run of each kind; the last one is resumed as well."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        devices = [tf.config.LogicalDeviceConfiguration()] * 2
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, devices)
    for kind in ON[keras.backend.backend()]:
        with mock.patch.object(Topology, "local", _with_shards(folder / f"{kind}.json")):
            run(["train", *arguments, *KINDS[kind], "--workdir", str(folder / kind)])
    copy_as_killed(folder / kind, folder / "resumed", 8)
    run(["train", *arguments, *KINDS[kind], "--workdir", str(folder / "resumed")])
    if keras.backend.backend() == "jax":
        _move(folder, arguments)


def _move(folder, arguments, listed=keras.distribution.list_devices):
    """Loads the last checkpoint in shards on 2 devices, on 1 and on 4, and saves it there."""
    path = folder / "fully_sharded" / "checkpoints" / "step_000000020"
    for i, (devices, kind) in enumerate(((2, "fully_sharded"), (1, None), (4, "both"))):
        config = parse_config([*arguments, *KINDS.get(kind, [])], default="")
        config = config.complete_task("classes")
        first = mock.patch.object(
            keras.distribution, "list_devices", lambda count=devices: listed()[:count]
        )
        with first, distribution.open(config) as topology:
            model = from_model_config(config.model, num_classes=10)
            compile_model(model, config)
            step = checkpoints.load(model, path, topology)
            path = checkpoints.save(model, folder / f"moved_{i}", step, 1, topology=topology)


def _with_shards(path, local=Topology.local):
    """Wraps `local` so that it first writes the shapes that one device holds of each variable."""

    def recorded(topology, model, build):
        shape = lambda value: getattr(value, "addressable_shards", [])[:1]
        variables = [*model.variables, *model.optimizer.variables]
        found = {v.path: [list(s.data.shape) for s in shape(v.value)] for v in variables}
        path.write_text(json.dumps(found))
        return local(topology, model, build)

    return recorded


if __name__ == "__main__":
    topologies.SMALLEST = 64  # the models of the tests are small
    globals()[sys.argv[1]](pathlib.Path(sys.argv[2]), sys.argv[3:])
