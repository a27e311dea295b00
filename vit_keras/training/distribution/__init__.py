"""Training on several devices or processes, as set by `Config.distribution`.

Example:
    with distribution.open(config) as topology:
        with topology.scope():
            model = ...
"""

import contextlib
import functools
import pkgutil

import keras

from vit_keras.support.checks import Rule, check_defaults, check_rules
from vit_keras.training.distribution.topology import (
    ALONE,
    Cluster,
    Topology,
    find_cluster,
    read_variable,
)

__all__ = [
    "ALONE",
    "Cluster",
    "Topology",
    "find_cluster",
    "open",
    "read_variable",
    "reduce_gradients",
]

ENGINES = {
    "jax": f"{__name__}.on_jax:JaxTopology",
    "tensorflow": f"{__name__}.on_tensorflow:TensorFlowTopology",
    "torch": f"{__name__}.on_torch:TorchTopology",
}
REDUCTIONS = {
    "tensorflow": f"{__name__}.on_tensorflow:sum_over_replicas",
    "torch": f"{__name__}.on_torch:mean_over_processes",
}
_resolved = functools.cache(pkgutil.resolve_name)  # an optimizer asks at every update
UNSUPPORTED = {  # (backend, distribution): what to do instead
    ("torch", "data_parallel"): "Start one process for each GPU with torchrun, with multi_worker",
    ("torch", "model_parallel"): "Use KERAS_BACKEND=jax",
    ("tensorflow", "model_parallel"): "Use KERAS_BACKEND=jax",
}
SPLIT: Rule = (
    ("shard_state", "distribution"),
    lambda split, distribution: not split or distribution != "none",
    "splitting the state needs a `distribution` other than none",
)
IN_PARTS: tuple[Rule, ...] = (  # on backends whose devices or processes compute their own losses
    (
        "pretext.objective",
        lambda objective: objective != "dino",
        "none, masked_patch or mae with a `distribution` on this backend, since dino needs the "
        "teacher's outputs for the whole batch. KERAS_BACKEND=jax allows it",
    ),
    (
        "model.dtype",
        lambda dtype: dtype != "mixed_float16",
        "float32 or mixed_bfloat16 with a `distribution` on this backend, where each copy of the "
        "model would skip different updates. KERAS_BACKEND=jax allows it",
    ),
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
        topology = _resolved(ENGINES[keras.backend.backend()])(cluster, config, mode)
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
    reduction = REDUCTIONS.get(keras.backend.backend())
    return _resolved(reduction)(gradients) if reduction else gradients


def _mode(distribution, cluster):
    if distribution == "auto":
        return "multi_worker" if cluster else "data_parallel" if _accelerators() > 1 else "none"
    if distribution in (("none", "data_parallel") if cluster else ("multi_worker",)):
        raise ValueError(
            "`distribution` must be multi_worker, or model_parallel on JAX, if a launcher names "
            "several processes (in RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, like torchrun, "
            "TF_CONFIG, or KERAS_DISTRIBUTION_*), and never multi_worker for one process. "
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
    if mode != "none":
        excluded[f"{where}, whose processes each see only their own loss at first"] = ("on_nan",)
        if cluster:
            alone = f"{where}, whose first process cannot run the model alone"
            excluded[alone] = ("watch_every", "fewshot_every")
        if backend == "tensorflow":
            more = f"{where} on tensorflow. KERAS_BACKEND=jax allows more"
            excluded[more] = ("optimizer.accumulation_steps", "steps_per_execution")
    for reason, names in excluded.items():
        check_defaults(config, names, reason)
    check_rules(config, None, [SPLIT, *(IN_PARTS if backend != "jax" and mode != "none" else ())])


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
    backend = keras.backend.backend()
    if backend == "torch":
        import torch

        return torch.cuda.device_count()
    if backend == "tensorflow":
        import tensorflow as tf

        return len(tf.config.list_physical_devices("GPU"))
    devices = keras.distribution.list_devices()
    return len([device for device in devices if not device.startswith("cpu")])
