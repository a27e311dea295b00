"""TensorFlow: `MirroredStrategy` over a machine's devices, `MultiWorkerMirroredStrategy` over
processes."""

import contextlib

import keras

from vit_keras.training.distribution.topology import Topology


class TensorFlowTopology(Topology):
    """Copies of the model that `tf.distribute` keeps equal."""

    distributed = True

    def __init__(self, cluster, config, mode):
        import tensorflow as tf

        super().__init__(cluster)
        if cluster:
            self.strategy = tf.distribute.MultiWorkerMirroredStrategy(_resolver(cluster))
            self._left.enter_context(_first_replica_logs(self.strategy))
        else:
            self.strategy = tf.distribute.MirroredStrategy(devices())
        self._gather = tf.function(
            self._gather_in_graph, input_signature=[tf.TensorSpec((), "int32")]
        )
        self.devices = self.replicas = self.strategy.num_replicas_in_sync

    def scope(self):
        return self.strategy.scope()

    def prepare(self, model):
        """Keras would build from the mean of a batch over processes, and fail (keras#20585)."""
        model._maybe_symbolic_build = lambda **_: None  # compile_model has built all

    def batches(self, dataset):
        """Keras splits a batch over one machine's devices; over processes it is split already."""
        if self.process_count == 1:
            return dataset
        local = self.replicas // self.process_count
        if local > 1:
            images = keras.tree.flatten(dataset.element_spec)[0]
            dataset = dataset.rebatch(images.shape[0] // local)
        return self.strategy.distribute_datasets_from_function(lambda context: dataset)

    def gather(self, value):
        import tensorflow as tf

        if self.process_count == 1:
            return super().gather(value)
        found = self._gather(tf.constant(value)).numpy()
        return found[:: self.replicas // self.process_count]

    def _gather_in_graph(self, value):
        return self.strategy.gather(self.strategy.run(lambda: value[None]), axis=0)


def devices() -> list[str]:
    """This process' GPUs; its CPUs, of which there may be several logical ones, without any."""
    import tensorflow as tf

    found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    return [device.name for device in found]


def sum_over_replicas(grads):
    """The sum of each gradient over the replicas, whose losses Keras has divided by their number.

    Keras itself would sum after the clipping, so that each replica clipped by a norm of its own.
    """
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, grads) if context else grads


def _resolver(cluster):
    import tensorflow as tf

    workers = tf.train.ClusterSpec({"worker": list(cluster.addresses)})
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        workers, task_type="worker", task_id=cluster.index, rpc_layer="grpc"
    )


@contextlib.contextmanager
def _first_replica_logs(strategy):
    """Step logs of this process' first replica, as Keras' own mean fails for scalars.

    Logs of an epoch or an evaluation are read from the metrics, which sum over all replicas.
    """
    from keras.src.backend.tensorflow import trainer

    kept, first = trainer.reduce_per_replica, lambda v: strategy.experimental_local_results(v)[0]
    trainer.reduce_per_replica = lambda values, *_, **__: keras.tree.map_structure(first, values)
    try:
        yield
    finally:
        trainer.reduce_per_replica = kept
