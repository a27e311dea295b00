"""Stops training at a loss that is not finite."""

import math

from vit_keras.training.callbacks.steps import StepCounter, number
from vit_keras.training.rollbacks import NonFinite


class StopOnNonFinite(StepCounter):
    """Raises `NonFinite` after a batch whose loss is NaN or infinite.

    A batch's loss is looked at when the next one has been sent off, so that neither waits for the
    host, and before anything is kept of it. fit's log is the mean over the epoch so far, which one
    such loss spoils for good.
    """

    unseen = None  # an update and its loss

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        self.look()
        self.unseen = (self.step + (self.parts > 0), logs["loss"])

    def on_test_begin(self, logs=None):
        self.look()

    def on_epoch_end(self, epoch, logs=None):
        self.look()

    def look(self):
        """Looks at the loss of the last batch now."""
        if self.unseen is not None:
            (step, loss), self.unseen = self.unseen, None
            if not math.isfinite(loss := number(loss)):
                raise NonFinite(f"the loss of update {step} is {loss}")
