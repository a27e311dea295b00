"""Training on several devices or processes, as set by `Config.distribution`.

Example:
    with distribution.open(config) as topology:
        with topology.scope():
            model = ...
"""

import contextlib
import functools
import importlib
from typing import Any

import keras

from vit_keras.support.checks import Rule, check_defaults, check_rules
from vit_keras.training.distribution.topology import (  # noqa: F401
    ALONE,
    Cluster,
    Topology,
    find_cluster,
    read_variable,
)

UNSUPPORTED = {  # (backend, distribution): what to do instead
    ("torch", "data_parallel"): "Start one process for each GPU with torchrun, with multi_worker",
    ("torch", "model_parallel"): "Use KERAS_BACKEND=jax",
    ("tensorflow", "model_parallel"): "Use KERAS_BACKEND=jax",
}
WHERE = "with a `distribution` on this backend. KERAS_BACKEND=jax allows more"
# On backends whose devices or processes compute their own losses: dino needs the teacher's outputs
# for the whole batch, and under mixed_float16 each copy of the model would skip other updates.
IN_PARTS: tuple[Rule, ...] = (
    ("pretext.objective", lambda name: name != "dino", f"none, masked_patch or mae {WHERE}"),
    ("model.dtype", lambda name: name != "mixed_float16", f"float32 or mixed_bfloat16 {WHERE}"),
)


@functools.cache  # an optimizer asks at every update
def _of_backend() -> Any:
    return importlib.import_module(f"{__name__}.on_{keras.backend.backend()}")


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
        topology = _of_backend().DistributedTopology(cluster, config, mode)
    try:
        _check_devices(config, mode, topology)
        yield topology
    except Exception:
        if topology.process_count > 1:
            topology.fail()
        raise
    finally:
        topology.leave()


def reduce_gradients(gradients: list) -> list:
    """Combines the gradients of all replicas or processes into the gradients of the whole batch.

    Optimizers call it before clipping. It changes nothing on one device or on JAX, whose program
    runs on the whole batch.
    """
    return _of_backend().reduce_gradients(gradients)


def _mode(distribution, cluster):
    if distribution == "auto":
        return "multi_worker" if cluster else "data_parallel" if _accelerators() > 1 else "none"
    if distribution in (("none", "data_parallel") if cluster else ("multi_worker",)):
        raise ValueError(
            "`distribution` must be multi_worker, or model_parallel on JAX, if a launcher names "
            "several processes (in RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, like torchrun, "
            "TF_CONFIG, or KERAS_DISTRIBUTION_*), and something else for one process. "
            f"Received: distribution={distribution}, {cluster.count if cluster else 1} processes"
        )
    return distribution


def _check(config, mode, cluster):
    """Raises ValueError for fields that do not suit the distribution or the backend."""
    backend, where = keras.backend.backend(), f"`distribution` {mode}"
    if instead := UNSUPPORTED.get((backend, mode)):
        raise ValueError(f"{where} does not exist on {backend}. {instead}")
    excluded: dict[str, tuple[str, ...]] = {}  # why fields must keep their defaults
    if backend != "jax":
        every = f"{backend}, where every device keeps the whole state. Use KERAS_BACKEND=jax"
        excluded[every] = ("shard_state",)
    if mode == "none":
        excluded[where] = ("shard_state",)
    else:
        excluded[f"{where}, whose processes each see only their own loss at first"] = ("on_nan",)
        if cluster:
            alone = f"{where}, whose first process cannot run the model alone"
            excluded[alone] = ("watch_every", "fewshot_every")
        if backend == "tensorflow":
            more = f"{where} on tensorflow. KERAS_BACKEND=jax allows more"
            excluded[more] = ("optimizer.accumulation_steps", "steps_per_execution")
    for reason, names in excluded.items():
        check_defaults(config, names, reason)
    if backend != "jax" and mode != "none":
        check_rules(config, None, IN_PARTS)


def _check_devices(config, mode, topology):
    replicas, steps = topology.replicas, config.optimizer.accumulation_steps
    if mode != "none" and topology.devices < 2:
        raise ValueError(f"`distribution` {mode} needs several devices. Received: 1 device")
    for name, divisor in {"batch": replicas * steps, "batch_eval": replicas}.items():
        if getattr(config, name) % divisor:
            times = " times `optimizer.accumulation_steps`" if divisor != replicas else ""
            raise ValueError(
                f"`{name}` must be a multiple of the number of copies{times}, {divisor}. "
                f"Received: {getattr(config, name)}"
            )


def _accelerators():
    """Counts the GPUs or TPUs that this process sees."""
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.device_count()
    return sum(not device.startswith("cpu") for device in keras.distribution.list_devices())
