"""The processes that take part in a run, from the environment variables that a launcher sets."""

import dataclasses
import json
import os

import keras

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The processes of a run.

    Attributes:
        index: The number of this process; 0 is the chief
        count: The number of processes
        addresses: Host:port of the chief or of every process; empty where the backend reads them
    """

    index: int
    count: int
    addresses: tuple[str, ...] = ()


def find_cluster() -> Cluster | None:
    """Reads the processes that the environment names.

    Every backend reads torchrun's RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. TF_CONFIG on
    TensorFlow and KERAS_DISTRIBUTION_* on JAX take precedence.

    Returns:
        The processes, or None where there is only this one.

    Raises:
        ValueError: Some of these variables are missing, or a value is not valid.
    """
    read_own = {"tensorflow": _from_tf_config, "jax": _from_keras}.get(keras.backend.backend())
    cluster = (read_own and read_own()) or _from_torchrun()
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


def _from_keras():
    values = _read("KERAS_DISTRIBUTION_", "PROCESS_ID", "NUM_PROCESSES", "JOB_ADDRESSES")
    if not values:
        return None
    index, count, addresses = values
    return Cluster(_int(index), _int(count), (addresses.split(",")[0],))


def _from_torchrun():
    values = _read("", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if not values:
        return None
    index, count, port = map(_int, (values[0], values[1], values[3]))
    host, backend = values[2], keras.backend.backend()
    # torchrun itself listens on MASTER_PORT, where only torch joins it.
    if backend == "torch":
        return Cluster(index, count)
    if backend == "jax":
        return Cluster(index, count, (f"{host}:{port + 1}",))
    if host not in LOOPBACK:
        raise ValueError(
            "TensorFlow needs the address of every process, and MASTER_ADDR names them only where "
            "all run on one machine (127.0.0.1). For several machines, set TF_CONFIG instead. "
            f"Received: MASTER_ADDR={host}"
        )
    return Cluster(index, count, tuple(f"{host}:{port + 1 + i}" for i in range(count)))


def _read(prefix, *names):
    variables = [prefix + name for name in names]
    values = [os.environ.get(variable) for variable in variables]
    if values[1] is None:  # the number of processes
        return None
    if missing := [name for name, value in zip(variables, values) if not value]:
        raise ValueError(
            f"{', '.join(variables)} must be set together to name the processes. "
            f"Missing: {', '.join(missing)}"
        )
    return values


def _int(text):
    if not text.isdecimal():
        raise ValueError(
            "The number of a process, the number of processes and a port must be whole numbers. "
            f"Received: {text!r}"
        )
    return int(text)
