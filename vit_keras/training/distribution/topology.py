"""The devices and processes of a run, as training sees them."""

import contextlib
import os
import sys
import traceback

import keras
import numpy as np

from vit_keras.training.distribution.environment import Cluster


class Topology:
    """One process on one device; an engine's subclass overrides what it does otherwise.

    Attributes:
        process_index, process_count: of this process, and of all
        devices: number of devices of all processes
        replicas: copies of the model, each of which computes its part of a batch
        shard: which part of every batch this process feeds, as (index, count)
        distributed: whether there is more than one device or process
    """

    devices = replicas = 1
    distributed = False

    def __init__(self, cluster: Cluster | None = None):
        self.process_index = cluster.index if cluster else 0
        self.process_count = cluster.count if cluster else 1
        self.shard = (self.process_index, self.process_count)
        self._left = contextlib.ExitStack()

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files of the run and prints."""
        return self.process_index == 0

    def scope(self):
        """A context to build and compile the model in."""
        return contextlib.nullcontext()

    def prepare(self, model: keras.Model) -> None:
        """Makes a compiled model train here; call it after every restore from a checkpoint."""

    def batches(self, dataset):
        """This process' batches as `fit` and `evaluate` take them."""
        return dataset

    def read_total(self, variable) -> np.ndarray:
        """The value over all processes of a metric's variable; all must ask for it."""
        return read(variable)

    def gather(self, value) -> np.ndarray:
        """A number of every process, `(process_count,)`; all processes must call it."""
        return np.asarray([value])

    @contextlib.contextmanager
    def chief_first(self):
        """The chief goes through the block before the other processes do."""
        if not self.is_chief:
            self.gather(0)
        yield
        if self.is_chief:
            self.gather(0)

    def local(self, model: keras.Model, build) -> keras.Model:
        """Ends the distribution; returns `model` on this process' first device alone.

        There it can be saved and asked by the chief without the others. `build()` makes a compiled
        model like it.
        """
        if not self.distributed:
            return model
        arrays = [read(variable) for variable in _variables(model)]
        self.leave()
        model = build()
        for variable, array in zip(_variables(model), arrays):
            variable.assign(array)
        return model

    def leave(self) -> None:
        """Ends the distribution; a second call does nothing."""
        self._left.close()

    def fail(self) -> None:
        """Ends this process of several at once, after an error, so that the others end as well.

        A usual exit would wait for them, and they for this one.
        """
        traceback.print_exc()
        print(
            f"Process {self.process_index} of {self.process_count} ended: the cause stands above, "
            "or in the output of the process that ended first. Start all again: they go on from "
            "the newest checkpoint",
            file=sys.stderr,
        )
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


ALONE = Topology()


def read(variable) -> np.ndarray:
    """A copy of the whole value of a variable, wherever its parts lie.

    Where processes share one copy of the model all must ask for it, in the same order.
    """
    value = keras.ops.convert_to_tensor(variable)  # a metric's on TensorFlow: over all replicas
    if getattr(value, "is_fully_addressable", True) or value.is_fully_replicated:
        return np.array(keras.ops.convert_to_numpy(value))
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(value, tiled=True)


def _variables(model):
    """All that training changes: of the model, dropout's seeds too, and of the optimiser."""
    return [*model.variables, *model.optimizer.variables]
