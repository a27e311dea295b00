"""Training on several devices or processes: which, by `Config.distribution`, and how, by backend.

with distribution.open(config) as topology:
    with topology.scope():
        model = ...
"""

import contextlib
import os

import keras

from vit_keras.training.distribution import on_tensorflow, on_torch
from vit_keras.training.distribution.environment import Cluster, find_cluster
from vit_keras.training.distribution.on_jax import JaxTopology
from vit_keras.training.distribution.topology import ALONE, Topology, read

__all__ = ["ALONE", "Cluster", "Topology", "find_cluster", "open", "read", "reduce_gradients"]

ENGINES = {
    "jax": JaxTopology,
    "tensorflow": on_tensorflow.TensorFlowTopology,
    "torch": on_torch.TorchTopology,
}
REDUCTIONS = {
    "tensorflow": on_tensorflow.sum_over_replicas,
    "torch": on_torch.mean_over_processes,
}
REFUSED = {
    ("torch", "data_parallel"): "start one process a GPU by torchrun, with multi_worker",
    ("torch", "model_parallel"): "KERAS_BACKEND=jax has it",
    ("tensorflow", "model_parallel"): "KERAS_BACKEND=jax has it",
}
# Keras' trainers are patched or relied upon inside (on_tensorflow.py, on_torch.py); its 3.16
# averages torch's gradients itself.
TESTED_KERAS = "3.15."


@contextlib.contextmanager
def open(config):
    """The `Topology` of a run's `Config`; models are made inside, after it is open.

    Where there are several processes an error ends this one at once, so that the others end too.
    Raises ValueError for a distribution that the backend, the devices or the batch do not allow.
    """
    cluster = find_cluster()
    mode = _mode(config.distribution, cluster)
    _check(config, mode, cluster)
    if mode == "none":
        topology = Topology()
    else:
        topology = ENGINES[keras.backend.backend()](cluster, config, mode)
    try:
        _check_devices(config, mode, topology)
        yield topology
    except Exception:
        if topology.process_count > 1:
            topology.fail()
        raise
    finally:
        topology.leave()


def reduce_gradients(grads: list) -> list:
    """Gradients over the whole batch, before they are clipped; the same where nothing is shared.

    On JAX they are so already: its program runs on the whole batch.
    """
    reduction = REDUCTIONS.get(keras.backend.backend())
    return reduction(grads) if reduction else grads


def _mode(distribution, cluster):
    if distribution == "auto":
        return "multi_worker" if cluster else "data_parallel" if _accelerators() > 1 else "none"
    if cluster and distribution in ("none", "data_parallel"):
        raise ValueError(
            f"`distribution` of {cluster.count} processes must be multi_worker, or model_parallel "
            f"on JAX. Received: distribution={distribution}; without the launcher's variables "
            "(WORLD_SIZE, TF_CONFIG, KERAS_DISTRIBUTION_*) there is one"
        )
    if not cluster and distribution == "multi_worker":
        raise ValueError(
            "`distribution` multi_worker needs several processes, as torchrun starts them: set "
            "RANK, WORLD_SIZE of 2 or more, MASTER_ADDR and MASTER_PORT. Received: "
            f"WORLD_SIZE={os.environ.get('WORLD_SIZE')}"
        )
    return distribution


def _check(config, mode, cluster):
    backend = keras.backend.backend()
    if instead := REFUSED.get((backend, mode)):
        raise ValueError(f"There is no `distribution` {mode} on {backend}: {instead}")
    if mode == "none":
        return
    if config.on_nan == "rollback":
        raise ValueError(
            "`on_nan` rollback needs one process on one device, which alone sees the loss. With "
            f"`distribution` {mode} use on_nan stop, and start again with a smaller rate"
        )
    for name in ("watch_every", "fewshot_every"):
        if cluster and getattr(config, name):
            raise ValueError(
                f"`{name}` must be 0 with several processes: the one that writes cannot ask the "
                f"model alone. Received: {name}={getattr(config, name)}"
            )
    if backend != "jax":
        _check_engine(config, mode, backend)


def _check_engine(config, mode, backend):
    """What TensorFlow's strategies and torch's processes cannot do."""
    if mode == "multi_worker" and not keras.__version__.startswith(TESTED_KERAS):
        raise ValueError(
            f"multi_worker on {backend} reaches into Keras and is tested with {TESTED_KERAS}* "
            f"alone. Received: Keras {keras.__version__}; KERAS_BACKEND=jax has it with any"
        )
    if config.model.dtype == "mixed_float16":
        raise ValueError(
            f"`distribution` {mode} on {backend} has no loss scaling: each copy of the model would "
            "skip steps of its own. Use model.dtype mixed_bfloat16, or KERAS_BACKEND=jax"
        )
    for name, value in (
        ("optimizer.accumulation_steps", config.optimizer.accumulation_steps),
        ("steps_per_execution", config.steps_per_execution),
    ):
        if backend == "tensorflow" and value > 1:
            raise ValueError(
                f"`{name}` must be 1 with `distribution` {mode} on tensorflow, whose strategies "
                f"fail otherwise. Received: {name}={value}; KERAS_BACKEND=jax has it"
            )


def _check_devices(config, mode, topology):
    replicas, steps = topology.replicas, config.optimizer.accumulation_steps
    if mode != "none" and topology.devices < 2:
        raise ValueError(f"`distribution` {mode} needs several devices. Received: 1 device")
    if config.batch % (replicas * steps):
        raise ValueError(
            "`batch` must be a multiple of the copies of the model times "
            f"`optimizer.accumulation_steps`. Received: batch={config.batch}, {replicas} copies, "
            f"accumulation_steps={steps}"
        )
    if config.batch_eval % replicas:
        raise ValueError(
            "`batch_eval` must be a multiple of the copies of the model. "
            f"Received: batch_eval={config.batch_eval}, {replicas} copies"
        )


def _accelerators():
    """How many GPUs or TPUs this process sees."""
    backend = keras.backend.backend()
    if backend == "torch":
        import torch

        return torch.cuda.device_count()
    if backend == "tensorflow":
        import tensorflow as tf

        return len(tf.config.list_physical_devices("GPU"))
    found = keras.distribution.list_devices()
    return len([device for device in found if not device.startswith("cpu")])
