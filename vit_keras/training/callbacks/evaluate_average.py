"""Evaluates the average of the weights."""

import keras

from vit_keras.training import weight_average


class EvaluateAverage(keras.callbacks.Callback):
    """Evaluates the average of the weights if the optimizer keeps one (`ema_decay`).

    Afterwards the weights are the same to the bit. Keras' `SwapEMAWeights` does not ensure this:
    on TensorFlow it swaps by addition, and on torch its copy is a view of what it overwrites.
    """

    def on_test_begin(self, logs=None):
        self.weights = weight_average.use(self.model)

    def on_test_end(self, logs=None):
        weight_average.put_back(self.model, self.weights)
