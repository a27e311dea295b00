"""JAX: `keras.distribution` runs one program over all devices of all processes."""

import math

import keras
import numpy as np

from vit_keras.training.distribution import Topology

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


class DistributedTopology(Topology):
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
        distribution: keras.distribution.Distribution
        if mode == "model_parallel" or config.shard_state:
            shared = config.model_devices if mode == "model_parallel" else 1
            distribution = ShardedModel(devices, shared, config.shard_state)
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
        shards = {}
        for shard in value.addressable_shards:
            if shard.replica_id == 0:
                spans = (span.indices(size) for span, size in zip(shard.index, value.shape))
                bounds = ",".join(f"{start}:{stop}" for start, stop, _ in spans)
                shards[f"@{bounds}"] = np.array(shard.data)  # "@0:16,8:64" for rows and columns
        return shards

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


def reduce_gradients(gradients: list) -> list:
    """Returns the gradients, which one program computes for the whole batch."""
    return gradients


class ShardedModel(keras.distribution.ModelParallel):
    """A distribution that splits copies of the model by `LAYOUT`, or the state over the copies.

    With `shard_state`, a variable with at least `SMALLEST` numbers is split along its largest
    dimension that the number of copies divides. The optimizer's variables are split like their
    weights. Other variables stay whole on every device. Each device gathers the weights of a layer
    when it computes with them (ZeRO, stage 3, arXiv 1910.02054; PyTorch's FSDP, arXiv 2304.11277).

    Args:
        devices: The names of the devices of all processes.
        model_devices: The number of devices that share one copy; it must divide the number of
            all devices.
        shard_state: Whether the copies share the state.
    """

    def __init__(self, devices: list[str], model_devices: int = 1, shard_state: bool = False):
        shape = (len(devices) // model_devices, model_devices)
        mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
        layout_map = keras.distribution.LayoutMap(mesh)
        for path, axes in LAYOUT.items() if model_devices > 1 else ():
            layout_map[path] = axes
        super().__init__(layout_map=layout_map, batch_dim_name="batch", auto_shard_dataset=False)
        self.shard_state = shard_state

    def get_variable_layout(self, variable):
        layout = super().get_variable_layout(variable)
        axes = list(layout.axes)
        axis = axis_to_split(variable.shape, self.num_model_replicas, tuple(axes))
        if axis is None or not self.shard_state:
            return layout
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
