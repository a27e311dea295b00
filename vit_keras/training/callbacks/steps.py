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


class CallbackList(keras.callbacks.CallbackList):
    """The callbacks of one call of `fit`. A `StepCounter` gets a batch's logs as the backend's.

    Keras brings them to the host for all, and so waits for the end of a batch before it prepares
    the next; here that is done for a callback of another kind alone.
    """

    def on_train_batch_end(self, batch, logs=None):
        for callback in self.callbacks:
            if isinstance(callback, StepCounter):
                callback.on_train_batch_end(batch, logs)
            elif _looks_at_batches(callback):
                callback.on_train_batch_end(batch, {name: number(logs[name]) for name in logs})


def _looks_at_batches(callback):
    of = lambda name: getattr(getattr(callback, name), "__func__", None)
    plain = keras.callbacks.Callback
    return any(
        of(name) is not getattr(plain, name) for name in ("on_train_batch_end", "on_batch_end")
    )


def number(scalar) -> float:
    """A scalar of the backend's, brought to the host."""
    return float(keras.ops.convert_to_numpy(scalar))


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
