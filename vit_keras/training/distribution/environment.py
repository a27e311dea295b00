"""Which processes take part in a run, from the variables that their launcher sets."""

import dataclasses
import json
import os

import keras

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The processes of a run.

    Attributes:
        index: of this process; 0 is the chief
        count: of processes
        addresses: host:port of the chief or of every process; empty where the backend reads them
    """

    index: int
    count: int
    addresses: tuple[str, ...] = ()


def find_cluster() -> Cluster | None:
    """The processes that the environment names, or None where this one is alone.

    Every backend reads torchrun's RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; TensorFlow also
    TF_CONFIG and JAX also KERAS_DISTRIBUTION_*, which come first. Raises ValueError for half of
    these.
    """
    own = {"tensorflow": _from_tf_config, "jax": _from_keras}.get(keras.backend.backend())
    found = (own and own()) or _from_torchrun()
    return found if found and found.count > 1 else None


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
    found = _read("KERAS_DISTRIBUTION_", "PROCESS_ID", "NUM_PROCESSES", "JOB_ADDRESSES")
    return found and Cluster(_int(found[0]), _int(found[1]), (found[2].split(",")[0],))


def _from_torchrun():
    found = _read("", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if not found:
        return None
    index, count, port = map(_int, (found[0], found[1], found[3]))
    host, backend = found[2], keras.backend.backend()
    # torchrun itself listens on MASTER_PORT, where only torch joins it.
    if backend == "torch":
        return Cluster(index, count)
    if backend == "jax":
        return Cluster(index, count, (f"{host}:{port + 1}",))
    if host not in LOOPBACK:
        raise ValueError(
            "TensorFlow needs the address of every process, which MASTER_ADDR gives only on one "
            f"machine (127.0.0.1): set TF_CONFIG instead. Received: MASTER_ADDR={host}"
        )
    return Cluster(index, count, tuple(f"{host}:{port + 1 + i}" for i in range(count)))


def _read(prefix, *names):
    names = [prefix + name for name in names]
    values = [os.environ.get(name) for name in names]
    if values[1] is None:  # the number of processes
        return None
    if missing := [name for name, value in zip(names, values) if not value]:
        raise ValueError(
            f"Processes are named by {', '.join(names)} together. Missing: {', '.join(missing)}"
        )
    return values


def _int(text):
    if not text.isdecimal():
        raise ValueError(
            "The number of a process, of processes and of a port must be a whole number. "
            f"Received: {text!r}"
        )
    return int(text)
