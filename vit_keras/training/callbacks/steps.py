"""Counts the updates of a run."""

import keras

from vit_keras.runs import Run


class StepCounter(keras.callbacks.Callback):
    """Base class whose `step` counts updates since the beginning of the run.

    An update takes `optimizer.accumulation_steps` batches of `fit`. `fit` calls the callback once
    for `model.steps_per_execution` batches.
    """

    def __init__(self, run: Run, start_step: int):
        super().__init__()
        self.config, self.step = run.config, start_step
        self.pending = 0  # batches since the last update

    def on_train_batch_begin(self, batch, logs=None):
        self.first = batch

    def on_train_batch_end(self, batch, logs=None):
        batches = self.pending + batch - self.first + 1
        updates, self.pending = divmod(batches, self.config.optimizer.accumulation_steps)
        if updates:
            self.step += updates
            self.on_step(logs)

    def on_step(self, logs):
        """Runs after an update, or after all updates of one execution."""


class CallbackList(keras.callbacks.CallbackList):
    """The callbacks of one call of `fit`, which does not wait for each batch to finish.

    Keras copies the logs of a batch to the host for every callback. It therefore waits for the end
    of the batch before it prepares the next one. Here a `StepCounter` gets the backend's tensors,
    and only other callbacks that use the logs of a batch get numbers.
    """

    def on_train_batch_end(self, batch, logs=None):
        for callback in self.callbacks:
            if isinstance(callback, StepCounter):
                callback.on_train_batch_end(batch, logs)
            elif _uses_batch_logs(callback):
                callback.on_train_batch_end(batch, {name: to_float(logs[name]) for name in logs})


def _uses_batch_logs(callback):
    method = lambda name: getattr(getattr(callback, name), "__func__", None)
    base = keras.callbacks.Callback
    return any(
        method(name) is not getattr(base, name) for name in ("on_train_batch_end", "on_batch_end")
    )


def to_float(scalar) -> float:
    """Copies a scalar of the backend to the host."""
    return float(keras.ops.convert_to_numpy(scalar))
