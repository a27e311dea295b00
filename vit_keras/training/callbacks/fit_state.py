"""Restores what `fit` resets when it begins."""

import keras

from vit_keras.runs import Run
from vit_keras.training.distribution import ALONE, Topology
from vit_keras.training.torch_generator import generator_state, set_generator_state


class RestoreFitState(keras.callbacks.Callback):
    """Lets `fit` continue a run, also in the middle of an epoch, as if it had not been stopped.

    `fit` sets the metrics to 0; this callback gives them back the values that they have when it is
    created. On torch, an iterator over training or evaluation data draws from the global generator
    when it is made; this callback sets the generator back to its state after the last batch.
    """

    def __init__(self, run: Run, start_step: int, model: keras.Model, topology: Topology = ALONE):
        super().__init__()
        self.metrics, self.topology = [], topology
        if start_step % run.config.eval_every:
            self.metrics = topology.read_replicas(model.metrics_variables)
        self.generator = generator_state()

    def on_epoch_begin(self, epoch, logs=None):
        self.topology.write_replicas(self.model.metrics_variables, self.metrics)
        self.metrics = []

    def on_train_batch_begin(self, batch, logs=None):
        self._set_generator()

    def on_test_begin(self, logs=None):
        self.generator = generator_state()

    def on_test_end(self, logs=None):
        self._set_generator()

    def on_train_end(self, logs=None):
        self.generator = generator_state()

    def _set_generator(self):
        if self.generator is not None:
            set_generator_state(self.generator)
            self.generator = None
