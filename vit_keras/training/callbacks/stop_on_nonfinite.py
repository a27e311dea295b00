"""Stops training at a loss that is not finite."""

import math

from vit_keras.training.callbacks.steps import StepCounter, to_float
from vit_keras.training.rollbacks import NonFinite


class StopOnNonFinite(StepCounter):
    """Raises `NonFinite` after a batch whose loss is NaN or infinite.

    The loss of a batch is checked after the next batch has been sent to the device, so that neither
    waits for the host, and before anything is saved. The log of `fit` would not do: it is the mean
    over the epoch so far, which stays NaN after one such loss.
    """

    unchecked = None  # the number and the loss of an update

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        self.check()
        self.unchecked = (self.step + (self.pending > 0), logs["loss"])

    def on_test_begin(self, logs=None):
        self.check()

    def on_epoch_end(self, epoch, logs=None):
        self.check()

    def check(self):
        """Checks the loss of the last batch now."""
        if self.unchecked is not None:
            (step, loss), self.unchecked = self.unchecked, None
            if not math.isfinite(loss := to_float(loss)):
                raise NonFinite(f"the loss of update {step} is {loss}")
