"""JAX: `keras.distribution` runs one program over all devices of all processes."""

import keras
import numpy as np

from vit_keras.training.distribution.topology import Topology

# Attention heads and the hidden units of MLPs are split, so that each pair of products needs one
# sum over the devices (Megatron-LM, arXiv 1909.08053, Section 3). The classifier is split over its
# D inputs, because the number of classes (such as 21 843) may not be divisible.
LAYOUT = {
    r".*/(query|key|value)/kernel": (None, "model", None),  # (D, H, d)
    r".*/(query|key|value)/bias": ("model", None),  # (H, d)
    r".*/rotary/frequencies": (None, "model", None),  # (2, H, d/2)
    r".*/relative_2d/table": (None, "model"),  # (offsets, H)
    r".*/out/kernel": ("model", None, None),  # (H, d, D)
    r".*/(Dense_0|gate)/kernel": (None, "model"),  # (D, mlp_dim)
    r".*/(Dense_0|gate)/bias": ("model",),  # (mlp_dim,)
    r".*/Dense_1/kernel": ("model", None),  # (mlp_dim, D)
    r"head(_dist)?/kernel": ("model", None),  # (D, K)
}


class JaxTopology(Topology):
    """`DataParallel`, or `ModelParallel` where `model_devices` devices share one copy."""

    distributed = True

    def __init__(self, cluster, config, mode):
        import jax

        super().__init__(cluster)
        if cluster:
            keras.distribution.initialize(cluster.addresses[0], cluster.count, cluster.index)
            self._exit_stack.callback(jax.distributed.shutdown)
        devices = keras.distribution.list_devices()
        self.devices = len(devices)
        if mode == "model_parallel":
            distribution = model_parallel(devices, config.model_devices)
        else:
            distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
        self.replicas = distribution.num_model_replicas
        self.shard = (distribution.data_shard_id, min(self.process_count, self.replicas))
        keras.distribution.set_distribution(distribution)
        self._exit_stack.callback(keras.distribution.set_distribution, None)

    def gather(self, value):
        from jax.experimental import multihost_utils

        return np.reshape(multihost_utils.process_allgather(np.asarray(value)), -1)


def model_parallel(devices: list[str], model_devices: int) -> keras.distribution.ModelParallel:
    """A distribution where each `model_devices` of `devices` share a copy, split by `LAYOUT`.

    Raises:
        ValueError: `model_devices` is below 2 or does not divide the number of devices.
    """
    if model_devices < 2 or len(devices) % model_devices:
        raise ValueError(
            "`model_devices`, the devices that share one copy of the model, must be 2 or more and "
            f"divide the number of devices. Received: model_devices={model_devices}, "
            f"{len(devices)} devices"
        )
    shape = (len(devices) // model_devices, model_devices)
    mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
    layout_map = keras.distribution.LayoutMap(mesh)
    for path, axes in LAYOUT.items():
        layout_map[path] = axes
    return _CheckedModelParallel(
        layout_map=layout_map, batch_dim_name="batch", auto_shard_dataset=False
    )


class _CheckedModelParallel(keras.distribution.ModelParallel):
    """Raises an error that names the dimension which does not divide; JAX names a sharding."""

    def get_variable_layout(self, variable):
        layout = super().get_variable_layout(variable)
        model_devices = self.device_mesh.shape[1]
        for i, axis in enumerate(layout.axes):
            if axis == "model" and variable.shape[i] % model_devices:
                raise ValueError(
                    f"Dimension {i} of {variable.path!r}, {tuple(variable.shape)}, must be a "
                    f"multiple of `model_devices`. Received: model_devices={model_devices}"
                )
        return layout
