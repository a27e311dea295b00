"""What evaluations within `fit` look at, and what they decide."""

import keras

from vit_keras.training import averages
from vit_keras.training.callbacks.recording import Recorder, out_of_patience


class EvaluateAverage(keras.callbacks.Callback):
    """Evaluates the average of the weights where the optimiser keeps one (`ema_decay`).

    The weights come back to the bit. Keras' `SwapEMAWeights` does not manage that: on TensorFlow
    it swaps by addition, and on torch its copy is a view of what it overwrites.
    """

    def on_test_begin(self, logs=None):
        self.weights = averages.use(self.model)

    def on_test_end(self, logs=None):
        averages.put_back(self.model, self.weights)


class Patience(keras.callbacks.Callback):
    """Stops after `patience` evaluations without a better `val_loss`; reads the recorded rows."""

    def __init__(self, recorder: Recorder, patience: int | None):
        super().__init__()
        self.recorder, self.patience = recorder, patience

    def on_epoch_end(self, epoch, logs=None):
        if out_of_patience(self.recorder.rows, self.patience):
            self.model.stop_training = True
