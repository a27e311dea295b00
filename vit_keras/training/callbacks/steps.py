"""Counts updates."""

import keras


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
