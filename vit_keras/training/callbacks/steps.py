"""Counting updates; what follows from the count or the loss alone."""

import math

import keras

from vit_keras.training.nonfinite import NonFinite

SHOWN = ("loss", "accuracy", "val_loss", "val_accuracy")


class StepCounter(keras.callbacks.Callback):
    """Base: `step` counts updates since the beginning of the run, over all calls of `fit`.

    An update is `optimizer.accumulation_steps` of fit's batches; fit calls once for as many of
    them as `model.steps_per_execution` says.
    """

    def __init__(self, config, start_step: int):
        super().__init__()
        self.config, self.step = config, start_step
        self.parts = 0  # batches since the last update

    def on_train_batch_begin(self, batch, logs=None):
        self.first = batch

    def on_train_batch_end(self, batch, logs=None):
        parts = self.parts + batch - self.first + 1
        updates, self.parts = divmod(parts, self.config.optimizer.accumulation_steps)
        if updates:
            self.step += updates
            self.on_step(logs)

    def on_step(self, logs):
        """Called after an update, or after all of an execution."""


class StopOnNonFinite(StepCounter):
    """Raises `NonFinite` after the first batch whose loss is NaN or infinite.

    fit's log is the mean over the epoch so far, which one such loss spoils for good, and fit has
    brought it to the host already: looking at it costs nothing.
    """

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, logs)
        if not math.isfinite(logs["loss"]):
            step = self.step + (self.parts > 0)
            raise NonFinite(f"the loss of update {step} is {logs['loss']}")


class Progress(StepCounter):
    """A bar with images per second and the time left, by tqdm."""

    def __init__(self, config, start_step: int):
        super().__init__(config, start_step)
        self.bar = None

    def on_train_begin(self, logs=None):
        from tqdm import tqdm

        if self.bar is None:
            total, done = (n * self.config.batch for n in (self.config.total_steps, self.step))
            self.bar = tqdm(
                total=total, initial=done, unit=" images", unit_scale=True, mininterval=1.0
            )

    def on_step(self, logs):
        self.bar.update(self.step * self.config.batch - self.bar.n)

    def on_epoch_end(self, epoch, logs=None):
        shown = {name: f"{value:.4f}" for name, value in logs.items() if name in SHOWN}
        self.bar.set_postfix(shown, refresh=False)

    def close(self):
        if self.bar is not None:
            self.bar.close()
