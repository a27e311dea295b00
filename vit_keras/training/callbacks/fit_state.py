"""What `fit` resets at its beginning, given back."""

import keras

from vit_keras.training.distribution import read_variable
from vit_keras.training.torch_generator import generator_state, set_generator_state


class RestoreFitState(keras.callbacks.Callback):
    """Lets `fit` go on where the model stands, in the middle of an epoch too.

    The metrics, which `fit` sets to 0, continue from the values they have now. On torch the global
    generator is as it was after the last batch: making an iterator over data, to train on or to
    evaluate, draws from it.
    """

    def __init__(self, config, start_step: int, model: keras.Model):
        super().__init__()
        self.metrics = []
        if start_step % config.eval_every:
            self.metrics = [read_variable(v) for v in model.metrics_variables]
        self.generator = generator_state()

    def on_epoch_begin(self, epoch, logs=None):
        for variable, value in zip(self.model.metrics_variables, self.metrics):
            variable.assign(value)
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
