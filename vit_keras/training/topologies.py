"""The devices and processes of a run: a subclass of `Topology` for each backend.

JAX runs one program on all devices of all processes. TensorFlow has `MirroredStrategy` on one
machine and `MultiWorkerMirroredStrategy` over processes. torch has one process per device.
"""

import contextlib
import dataclasses
import math
import os
import sys
import traceback

import keras
import numpy as np

from vit_keras.layers.base import fold_in
from vit_keras.support import keras_internals


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The processes of a run.

    Attributes:
        index: The number of this process; 0 is the chief.
        count: The number of processes.
        addresses: Host:port of the chief or of every process; empty if the backend finds them.
    """

    index: int
    count: int
    addresses: tuple[str, ...] = ()


class Topology:
    """One process on one device; each backend's subclass overrides the differences.

    Attributes:
        process_index: The number of this process.
        process_count: The number of processes.
        devices: The number of devices of all processes.
        replicas: The number of copies of the model; each computes a share of every batch.
        shard: The share of every batch that this process feeds, as (index, count).
    """

    devices = replicas = 1

    def __init__(self, cluster: Cluster | None = None):
        self.process_index = cluster.index if cluster else 0
        self.process_count = cluster.count if cluster else 1
        self.shard = (self.process_index, self.process_count)
        self._exit_stack = contextlib.ExitStack()

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run's files and prints messages."""
        return self.process_index == 0

    def scope(self):
        """Returns the context in which the model is built and compiled."""
        return contextlib.nullcontext()

    def prepare(self, model: keras.Model) -> None:
        """Prepares a compiled model for training here. Call it after every restore."""

    def batches(self, batches):
        """Returns this process's `data.Batches` in a form that `fit` and `evaluate` take."""
        return batches.as_dataset()

    def read_replicas(self, variables: list) -> list[np.ndarray]:
        """Reads each replica's values of metric variables; all processes must call it.

        A resumed run needs them, because sums that continue from a total are rounded differently.

        Returns:
            An array `(replicas, ...)` for each variable; on JAX `(1, ...)`, where one program
            computes the sums of all devices.
        """
        return [read_variable(variable)[None] for variable in variables]

    def write_replicas(self, variables: list, replicas: list[np.ndarray]) -> None:
        """Sets metric variables to the result of `read_replicas`.

        Values for another number of replicas are summed, and the first replica gets the sum.
        """
        for variable, values in zip(variables, replicas):
            variable.assign(fit_replicas(values, 1)[0])

    def read_parts(self, variable) -> dict[str, np.ndarray]:
        """Reads this process's data for a checkpoint; all processes must call it.

        Returns:
            The whole variable with the key "", or each slice that only this process adds, with its
            bounds in each dimension as the key, "@START:STOP,...".
        """
        return {"": read_variable(variable)}

    def write_variable(self, variable, array: np.ndarray) -> None:
        """Sets a variable, which may be split over devices, to `array`, its whole value."""
        variable.assign(array)

    def gather(self, value) -> np.ndarray:
        """Collects one number per process, `(process_count,)`; all processes must call it."""
        return np.asarray([value])

    @contextlib.contextmanager
    def chief_first(self):
        """Lets the chief run the block before the other processes do."""
        if not self.is_chief:
            self.gather(0)
        yield
        if self.is_chief:
            self.gather(0)

    def local(self, model: keras.Model, build) -> keras.Model:
        """Ends the distribution and returns `model` on this process's first device.

        The chief can then save and run the model without the other processes.

        Args:
            model: The trained model.
            build: A function without arguments that builds and compiles such a model.
        """
        if self.devices == 1:
            return model
        trained = lambda made: [*made.variables, *made.optimizer.variables]  # and dropout's seeds
        arrays = [read_variable(variable) for variable in trained(model)]
        self.leave()
        model = build()
        for variable, array in zip(trained(model), arrays):
            variable.assign(array)
        return model

    def leave(self) -> None:
        """Ends the distribution. A second call does nothing."""
        self._exit_stack.close()

    def fail(self) -> None:
        """Prints the error and ends this process at once, so that the other processes end too.

        An ordinary exit would wait for the other processes, which wait for this one.
        """
        traceback.print_exc()
        print(
            f"Process {self.process_index} of {self.process_count} ended. The cause is printed "
            "above, or in the output of the process that ended first. Start all processes again: "
            "they continue from the newest checkpoint",
            file=sys.stderr,
        )
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    @staticmethod
    def reduce_gradients(gradients: list) -> list:
        """Does what the function `reduce_gradients` does; here, one program has the whole batch."""
        return gradients


ALONE = Topology()


def fit_replicas(values: np.ndarray, count: int) -> np.ndarray:
    """Returns metrics `(n, ...)` for `count` replicas: the same values, or their sum and zeros."""
    if len(values) == count:
        return values
    fitting = np.zeros((count, *values.shape[1:]), values.dtype)
    fitting[0] = values.sum(axis=0)
    return fitting


def read_variable(variable) -> np.ndarray:
    """Copies the whole value of a variable, which may be split over several devices.

    If processes share one copy of the model, all must read the same variables in the same order.
    """
    value = keras.ops.convert_to_tensor(variable)  # on TensorFlow, metrics sum over replicas
    if getattr(value, "is_fully_addressable", True) or value.is_fully_replicated:
        return np.array(keras.ops.convert_to_numpy(value))
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(value, tiled=True)


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
SMALLEST = 2**14  # with `shard_state`, smaller variables stay whole: gathering them takes longer


class JaxTopology(Topology):
    """`DataParallel`, or `ModelParallel` if devices share one copy or the state."""

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


class TensorflowTopology(Topology):
    """Copies of the model that `tf.distribute` keeps equal, on one machine or on several."""

    def __init__(self, cluster, config, mode):
        import tensorflow as tf

        super().__init__(cluster)
        if cluster:
            workers = tf.train.ClusterSpec({"worker": list(cluster.addresses)})
            resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
                workers, task_type="worker", task_id=cluster.index, rpc_layer="grpc"
            )
            self.strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver)
            # The logs of a step come from the first replica, since Keras' mean fails for scalars.
            # Those of an epoch come from the metrics, which sum over all replicas.
            first = lambda value: self.strategy.experimental_local_results(value)[0]
            of_step = lambda values: keras.tree.map_structure(first, values)
            self._exit_stack.enter_context(keras_internals.reduced_logs(of_step))
        else:
            logical = tf.config.list_logical_devices
            names = [device.name for device in logical("GPU") or logical("CPU")]
            self.strategy = tf.distribute.MirroredStrategy(names)
        numbers = tf.TensorSpec((None,), "float64")
        self._gather_in_graph = tf.function(self._of_replicas, input_signature=[numbers])
        self.devices = self.replicas = self.strategy.num_replicas_in_sync

    def scope(self):
        return self.strategy.scope()

    def prepare(self, model):
        """Stops Keras from building the model with a batch's mean over processes (keras#20585)."""
        keras_internals.skip_building(model)  # compile_model has built everything

    def batches(self, batches):
        """Keras splits a batch over one machine's devices; several processes each feed a share."""
        dataset = batches.as_dataset()
        if self.process_count == 1:
            return dataset
        local = self.replicas // self.process_count
        if local > 1:
            images = keras.tree.flatten(dataset.element_spec)[0]
            dataset = dataset.rebatch(images.shape[0] // local)
        return self.strategy.distribute_datasets_from_function(lambda context: dataset)

    def read_replicas(self, variables):
        local = [np.stack([np.array(v) for v in self._local(variable)]) for variable in variables]
        if self.process_count == 1 or not local:
            return local
        rows = self._gather(np.concatenate([values.reshape(-1) for values in local]))
        columns = np.split(rows, np.cumsum([values.size for values in local])[:-1], axis=1)
        return [
            column.reshape(-1, *values.shape[1:]).astype(values.dtype)
            for column, values in zip(columns, local)
        ]

    def write_replicas(self, variables, replicas):
        for variable, values in zip(variables, replicas):
            local = self._local(variable)
            first = self.process_index * len(local)
            for held, value in zip(local, fit_replicas(values, self.replicas)[first:]):
                held.assign(value)

    def _local(self, variable):
        """The TensorFlow variables of a metric in this process's replicas."""
        return self.strategy.experimental_local_results(variable.value)

    def gather(self, value):
        if self.process_count == 1:
            return super().gather(value)
        return self._gather(np.array([value]))[:, 0].astype("int64")

    def _gather(self, numbers):
        """The numbers of each process, `(n,)` -> `(processes, n)` float64."""
        gathered = self._gather_in_graph(numbers.astype("float64")).numpy()  # of each replica
        return gathered[:: self.replicas // self.process_count]

    def _of_replicas(self, numbers):
        return self.strategy.gather(self.strategy.run(lambda: numbers[None]), axis=0)

    @staticmethod
    def reduce_gradients(gradients: list) -> list:
        """Sums each gradient over the replicas; Keras has divided their losses by their number.

        Keras itself would sum after clipping, so each replica would clip by its own norm.
        """
        import tensorflow as tf

        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, gradients) if context else gradients


class TorchTopology(Topology):
    """One of several processes, each with its own device."""

    def __init__(self, cluster, config, mode):
        import torch

        super().__init__(cluster)
        self.devices = self.replicas = cluster.count
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        if self._device == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        torch.distributed.init_process_group("nccl" if self._device == "cuda" else "gloo")
        self._exit_stack.callback(torch.distributed.destroy_process_group)

    def prepare(self, model):
        """Gives each process its own dropout masks, and sums logged metrics over processes."""
        keras_internals.wrap_logs(model, _summed_logs)
        for variable in () if self.is_chief else model.variables:
            if variable.path.endswith("seed_generator_state"):
                seed, counter = read_variable(variable)
                seed = fold_in(int(seed), f"process_{self.process_index}")
                variable.assign(np.array([seed, counter], variable.dtype))

    def read_replicas(self, variables):
        replicas = []
        for variable in variables:
            values = variable.value.new_zeros((self.process_count, *variable.shape))
            values[self.process_index] = variable.value
            replicas.append(values)
        return [values.cpu().numpy() for values in _all_reduce(replicas)] if replicas else []

    def write_replicas(self, variables, replicas):
        for variable, values in zip(variables, replicas):
            variable.assign(fit_replicas(values, self.process_count)[self.process_index])

    def gather(self, value):
        import torch

        values = torch.zeros(self.process_count, dtype=torch.int64, device=self._device)
        values[self.process_index] = value
        return _all_reduce([values])[0].cpu().numpy()

    @staticmethod
    def reduce_gradients(gradients: list) -> list:
        """Averages each gradient over the processes; changes nothing if there is only one."""
        import torch

        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return gradients
        count = torch.distributed.get_world_size()
        return [total / count for total in _all_reduce(gradients)]


def _summed_logs(model, read_logs, logs):
    """Calls `read_logs(logs)` while the metrics hold their sums over the processes."""
    variables = model.metrics_variables
    values = [variable.value.clone() for variable in variables]
    for variable, total in zip(variables, _all_reduce(values)):
        variable.assign(total)
    summed = read_logs(logs)
    for variable, value in zip(variables, values):
        variable.assign(value)
    return summed


def _all_reduce(tensors):
    """Sums tensors over the processes, in one message."""
    import torch

    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    torch.distributed.all_reduce(flat)
    sums = flat.split([tensor.numel() for tensor in tensors])
    return [total.reshape(tensor.shape) for total, tensor in zip(sums, tensors)]


TOPOLOGIES = {"jax": JaxTopology, "tensorflow": TensorflowTopology, "torch": TorchTopology}


def reduce_gradients(gradients: list) -> list:
    """Combines the gradients of all replicas or processes into the gradients of the whole batch.

    Optimizers call it before clipping. It changes nothing on one device or on JAX, whose program
    runs on the whole batch.
    """
    return TOPOLOGIES[keras.backend.backend()].reduce_gradients(gradients)
