"""JAX: `keras.distribution` runs one program over all devices of all processes."""

import math

import keras
import numpy as np

from vit_keras.training.distribution.topology import Topology

# Attention heads and the hidden units of MLPs are split, so each pair of products needs one sum
# over the devices (Megatron-LM, arXiv 1909.08053, Section 3). The classifier is split over its D
# inputs, because the number of classes (such as 21 843) may not be divisible.
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
SMALLEST = 2**14  # with `shard_state`, smaller variables stay whole: gathering takes longer


class JaxTopology(Topology):
    """`DataParallel`, or `ModelParallel` if devices share one copy or the state."""

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
            distribution = model_parallel(devices, config.model_devices, config.shard_state)
        elif config.shard_state:
            distribution = fully_sharded(devices)
        else:
            distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
        self.replicas = distribution.num_model_replicas
        self.shard = (distribution.data_shard_id, min(self.process_count, self.replicas))
        keras.distribution.set_distribution(distribution)
        self._exit_stack.callback(keras.distribution.set_distribution, None)

    def read_parts(self, variable):
        value = variable.value
        if value.is_fully_addressable or value.is_fully_replicated:
            return super().read_parts(variable)
        first = [shard for shard in value.addressable_shards if shard.replica_id == 0]
        return {_bounds(shard.index, value.shape): np.array(shard.data) for shard in first}

    def write_variable(self, variable, array):
        sharding = variable.value.sharding
        if not sharding.is_fully_addressable:  # JAX would compare the array between processes
            import jax

            array = np.asarray(array, variable.value.dtype)
            array = jax.make_array_from_callback(array.shape, sharding, array.__getitem__)
        variable.assign(array)

    def gather(self, value):
        from jax.experimental import multihost_utils

        return np.reshape(multihost_utils.process_allgather(np.asarray(value)), -1)


def _bounds(index, shape):
    """The bounds of a slice in a checkpoint: "@0:16,8:64" for rows and columns."""
    spans = (span.indices(size)[:2] for span, size in zip(index, shape))
    return "@" + ",".join(f"{start}:{stop}" for start, stop in spans)


def model_parallel(
    devices: list[str], model_devices: int, shard_state: bool = False
) -> keras.distribution.ModelParallel:
    """A distribution where groups of `model_devices` devices share a copy, split by `LAYOUT`.

    Args:
        devices: The names of the devices of all processes.
        model_devices: The number of devices that share one copy.
        shard_state: Whether the copies also share the state, as in `fully_sharded`.

    Raises:
        ValueError: If `model_devices` is below 2 or does not divide the number of devices.
    """
    if model_devices < 2 or len(devices) % model_devices:
        raise ValueError(
            "`model_devices`, the devices that share one copy of the model, must be 2 or more and "
            f"divide the number of devices. Received: model_devices={model_devices}, "
            f"{len(devices)} devices"
        )
    shape = (len(devices) // model_devices, model_devices)
    mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
    return _ByRule(mesh, LAYOUT, shard_state)


def fully_sharded(devices: list[str]) -> keras.distribution.ModelParallel:
    """A distribution where each device holds part of the state and computes part of the batch.

    A variable with at least `SMALLEST` numbers is split along its largest dimension that the number
    of devices divides. The optimizer's variables are split like their weights. Other variables stay
    whole on every device. Each device gathers the weights of a layer when it computes with them
    (ZeRO, stage 3, arXiv 1910.02054; PyTorch's FSDP, arXiv 2304.11277).

    Args:
        devices: The names of the devices of all processes.
    """
    mesh = keras.distribution.DeviceMesh((len(devices),), ("batch",), devices)
    return _ByRule(mesh, {}, shard_state=True)


class _ByRule(keras.distribution.ModelParallel):
    """Splits variables by a map of layouts; unlike JAX's, its errors name the variable.

    Args:
        mesh: The devices; the axis "batch" splits the images, and "model" a copy of the model.
        layouts: The axes that split the dimensions of a variable, by patterns of its path.
        shard_state: Whether "batch" also splits the variables, as in `fully_sharded`.
    """

    def __init__(self, mesh, layouts, shard_state):
        layout_map = keras.distribution.LayoutMap(mesh)
        for path, axes in layouts.items():
            layout_map[path] = axes
        super().__init__(layout_map=layout_map, batch_dim_name="batch", auto_shard_dataset=False)
        self.shard_state = shard_state

    def get_variable_layout(self, variable):
        layout = super().get_variable_layout(variable)
        for i, axis in enumerate(layout.axes):
            if axis == "model" and variable.shape[i] % self.device_mesh.shape[1]:
                raise ValueError(
                    f"Dimension {i} of {variable.path!r}, {tuple(variable.shape)}, must be a "
                    "multiple of `model_devices`. Received: "
                    f"model_devices={self.device_mesh.shape[1]}"
                )
        return self._sharded(layout, variable.shape) if self.shard_state else layout

    def _sharded(self, layout, shape):
        """Splits the dimension that `axis_to_split` names."""
        axis = axis_to_split(shape, self.num_model_replicas, tuple(layout.axes))
        if axis is None:
            return layout
        axes = list(layout.axes)
        axes[axis] = "batch"
        return keras.distribution.TensorLayout(axes, self.device_mesh)


def axis_to_split(
    shape: tuple[int, ...], copies: int, axes: tuple[str | None, ...] | None = None
) -> int | None:
    """The dimension of a variable that `shard_state` splits over the copies of the model.

    Args:
        shape: The variable's shape.
        copies: The number of copies.
        axes: The axes of the mesh that already split the dimensions, or None.

    Returns:
        The largest unsplit dimension that `copies` divides, or None if there is none or the
        variable is small.
    """
    axes = axes or (None,) * len(shape)
    whole = [i for i, axis in enumerate(axes) if axis is None and shape[i] % copies == 0]
    if not whole or "batch" in axes or math.prod(shape) < SMALLEST:
        return None
    return max(whole, key=lambda i: shape[i])


def compiled_step(model: keras.Model, images: int):
    """JAX's program for a training step of a compiled model on `images` images, as in `fit`."""
    import jax

    groups = (
        *(model.trainable_variables, model.non_trainable_variables),
        *(model.optimizer.variables, model.metrics_variables),
    )
    state = tuple([variable.value for variable in group] for group in groups)
    used = keras.distribution.distribution()

    def array(*shape):
        layout = used.get_data_layout(shape).backend_layout if used else None
        return jax.ShapeDtypeStruct(shape, "float32", sharding=layout)

    data = array(images, *model.input_shape[1:]), array(images, *model.output_shape[1:])
    shardings = (None, jax.tree.map(lambda x: x.sharding, state)) if used else None
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=shardings)
    return step.lower(state, data).compile()
