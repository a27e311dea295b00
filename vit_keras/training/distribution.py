"""Training on several devices or processes, as set by `Config.distribution`.

Example:
    with distribution.open(config) as topology:
        with topology.scope():
            model = ...
"""

import contextlib
import json
import os

import keras

from vit_keras.support.checks import Rule, check_defaults, check_rules
from vit_keras.training.topologies import TOPOLOGIES, Cluster, Topology

LOOPBACK = ("127.0.0.1", "localhost", "::1")
UNSUPPORTED = {  # (backend, distribution): what to do instead
    ("torch", "data_parallel"): "Start one process per GPU with torchrun, and use multi_worker",
    ("torch", "model_parallel"): "Use KERAS_BACKEND=jax",
    ("tensorflow", "model_parallel"): "Use KERAS_BACKEND=jax",
}
WHERE = "with a `distribution` on this backend. KERAS_BACKEND=jax allows more"
# On backends whose devices or processes compute their own losses: dino needs the teacher's outputs
# for the whole batch, and under mixed_float16 each copy of the model would skip different updates.
IN_PARTS: tuple[Rule, ...] = (
    ("pretext.objective", lambda name: name != "dino", f"none, masked_patch or mae {WHERE}"),
    ("model.dtype", lambda name: name != "mixed_float16", f"float32 or mixed_bfloat16 {WHERE}"),
)


@contextlib.contextmanager
def open(config):
    """Yields the `Topology` of a run's `Config`; models are built inside the block.

    If there are several processes, an error ends this process at once, so that the others end too.

    Raises:
        ValueError: If the backend, the devices, the batch size or another field of `config` does
            not allow the distribution.
    """
    cluster = find_cluster()
    mode = _mode(config.distribution, cluster)
    _check(config, mode, cluster)
    if mode == "none":
        topology = Topology()
    else:
        topology = TOPOLOGIES[keras.backend.backend()](cluster, config, mode)
    try:
        _check_devices(config, mode, topology)
        yield topology
    except Exception:
        if topology.process_count > 1:
            topology.fail()
        raise
    finally:
        topology.leave()


def _mode(distribution, cluster):
    if distribution == "auto":
        return "multi_worker" if cluster else "data_parallel" if _accelerators() > 1 else "none"
    if distribution in (("none", "data_parallel") if cluster else ("multi_worker",)):
        raise ValueError(
            "`distribution` must be multi_worker, or model_parallel on JAX, if a launcher names "
            "several processes (in RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun "
            "does, in TF_CONFIG, or in KERAS_DISTRIBUTION_*), and another value if it names none. "
            f"Received: distribution={distribution}, processes={cluster.count if cluster else 1}"
        )
    return distribution


def _check(config, mode, cluster):
    """Raises ValueError for fields that do not suit the distribution or the backend."""
    backend, where = keras.backend.backend(), f"`distribution` {mode}"
    if instead := UNSUPPORTED.get((backend, mode)):
        raise ValueError(f"{where} does not exist on {backend}. {instead}")
    if backend != "jax":
        every = f"{backend}, where every device keeps the whole state. Use KERAS_BACKEND=jax"
        check_defaults(config, ("shard_state",), every)
    if mode == "none":
        return check_defaults(config, ("shard_state",), where)
    if cluster:
        alone = f"{where}, whose first process cannot run the model alone"
        check_defaults(config, ("fewshot_every",), alone)
    if backend == "tensorflow":
        more = f"{where} on tensorflow. KERAS_BACKEND=jax allows more"
        check_defaults(config, ("optimizer.accumulation_steps", "steps_per_execution"), more)
    if backend != "jax":
        check_rules(config, None, IN_PARTS)


def _check_devices(config, mode, topology):
    replicas, steps = topology.replicas, config.optimizer.accumulation_steps
    if mode != "none" and topology.devices < 2:
        raise ValueError(f"`distribution` {mode} needs several devices. Received: 1. Leave it out")
    for name, divisor in {"batch": replicas * steps, "batch_eval": replicas}.items():
        if getattr(config, name) % divisor:
            times = " times `optimizer.accumulation_steps`" if divisor != replicas else ""
            raise ValueError(
                f"`{name}` must be a multiple of {divisor}, the number of model copies{times}. "
                f"Received: {getattr(config, name)}"
            )


def _accelerators():
    """Counts the GPUs or TPUs that this process sees."""
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.device_count()
    return sum(not device.startswith("cpu") for device in keras.distribution.list_devices())


def find_cluster() -> Cluster | None:
    """Reads from the environment which processes take part in the run.

    Every backend reads torchrun's RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. TF_CONFIG on
    TensorFlow and KERAS_DISTRIBUTION_* on JAX take precedence.

    Returns:
        The processes, or None if there is only this one.

    Raises:
        ValueError: If some of these variables are missing, or if a value is invalid.
    """
    backend, cluster = keras.backend.backend(), None
    if backend == "tensorflow":
        cluster = _from_tf_config()
    elif backend == "jax":
        names = ("PROCESS_ID", "NUM_PROCESSES", "JOB_ADDRESSES")
        if values := _read("KERAS_DISTRIBUTION_", *names):
            cluster = Cluster(int(values[0]), int(values[1]), (values[2].split(",")[0],))
    cluster = cluster or _from_torchrun(backend)
    return cluster if cluster and cluster.count > 1 else None


def _from_tf_config():
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    if not config:
        return None
    workers = config.get("cluster", {}).get("worker", [])
    task = config.get("task", {})
    if task.get("type") != "worker" or task.get("index") not in range(len(workers)):
        raise ValueError(
            'TF_CONFIG must be {"cluster": {"worker": [ADDRESS, ...]}, "task": {"type": "worker", '
            f'"index": I}}}}, with workers only. Received: {os.environ["TF_CONFIG"]}'
        )
    return Cluster(task["index"], len(workers), tuple(workers))


def _from_torchrun(backend):
    values = _read("", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if not values:
        return None
    index, count, port, host = int(values[0]), int(values[1]), int(values[3]), values[2]
    # torchrun itself listens on MASTER_PORT, where only torch joins it.
    if backend == "torch":
        return Cluster(index, count)
    if backend == "jax":
        return Cluster(index, count, (f"{host}:{port + 1}",))
    if host not in LOOPBACK:
        raise ValueError(
            "TensorFlow needs the address of every process, and MASTER_ADDR suffices only if all "
            "of them run on one machine (127.0.0.1). For several machines, set TF_CONFIG instead. "
            f"Received: MASTER_ADDR={host}"
        )
    return Cluster(index, count, tuple(f"{host}:{port + 1 + i}" for i in range(count)))


def _read(prefix, *names):
    variables = [prefix + name for name in names]
    values = [os.environ.get(variable) for variable in variables]
    if values[1] is None:  # the number of processes
        return None
    if missing := [name for name, value in zip(variables, values) if not value]:
        raise ValueError(f"{', '.join(variables)} must all be set. Missing: {', '.join(missing)}")
    return values
