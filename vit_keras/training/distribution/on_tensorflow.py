"""TensorFlow: `MirroredStrategy` on one machine, `MultiWorkerMirroredStrategy` over processes."""

import keras
import numpy as np

from vit_keras.support import keras_internals
from vit_keras.training.distribution import Topology, fit_replicas


class DistributedTopology(Topology):
    """Copies of the model that `tf.distribute` keeps equal."""

    distributed = True

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
        """Keras splits a batch over the devices of one machine; processes feed their own share."""
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


def reduce_gradients(gradients: list) -> list:
    """Sums each gradient over the replicas; Keras has divided their losses by their number.

    Keras itself would sum after clipping, so each replica would clip by its own norm.
    """
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, gradients) if context else gradients
