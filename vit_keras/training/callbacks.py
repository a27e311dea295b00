"""What a run does at each update, evaluation and epoch of `model.fit`."""

import contextlib
import math
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from vit_keras import runs
from vit_keras.runs import Run
from vit_keras.support import command_line, extras
from vit_keras.support.tasks import KINDS
from vit_keras.training import checkpoints
from vit_keras.training.checkpoints import CheckpointWriter, generator_state, set_generator_state
from vit_keras.training.metrics import EvaluateLabels, to_float
from vit_keras.training.optimizers import inner_optimizer, put_back, use_average
from vit_keras.training.topologies import Topology, read_variable

SIGNALED = 128  # a shell reports this plus the number of the signal that ended a process
NAMES = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}
METRICS = tuple(kind.metric for kind in KINDS.values())
SHOWN = ("loss", *METRICS, "val_loss", *(f"val_{name}" for name in METRICS))


@contextlib.contextmanager
def stop_signals() -> Iterator[Any]:
    """Notes, in a `with` block, the first signal that asks a run to stop after an update.

    A second signal has its usual effect.

    Yields:
        An object with two attributes: `number`, the number of the signal, or 0; and `begun`, which
        the run sets after its first update. Until then there is nothing to lose, and Ctrl-C has
        its usual effect.
    """
    noted = types.SimpleNamespace(number=0, begun=False)
    if threading.current_thread() is not threading.main_thread():
        yield noted  # only the main thread may set handlers
        return
    previous = {number: signal.getsignal(number) for number in NAMES}

    def collect(number, _):
        signal.signal(number, previous[number])
        if number == signal.SIGINT and not noted.begun:
            signal.raise_signal(number)
            return
        noted.number = noted.number or number
        if number == signal.SIGINT:
            command_line.set_exit_code(SIGNALED + number)  # the next signal ends the process

    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:  # a shell makes background jobs ignore Ctrl-C
            signal.signal(number, collect)
    try:
        yield noted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class RunCallbacks(keras.callbacks.CallbackList):
    """The callbacks of a run for `fit`: what the run does itself, and others that it calls.

    - *Counting*: `step` counts updates since the beginning of the run. An update takes
      `optimizer.accumulation_steps` batches of `fit`, which calls the callbacks once every
      `model.steps_per_execution` batches. Keras would copy a batch's logs to the host for every
      callback, and so wait for the batch to finish before it prepares the next one. Here, only
      callbacks that use a batch's logs get numbers.
    - *Finite losses*: a batch's loss is checked after the next batch has been sent to the device,
      so that the device need not wait, but before anything is saved. The logs of `fit` cannot be
      used: they hold the mean over the epoch so far, which stays NaN after one such loss.
    - *Evaluation* of the average of the weights, if the optimizer keeps one. Afterward, the weights
      are restored bit for bit. Keras' `SwapEMAWeights` does not ensure this: on TensorFlow it swaps
      by addition, and on torch its copy is a view of the overwritten weights.
    - *Records*: each evaluation adds a row to `metrics.csv` and `metrics.json`. Training stops
      after `patience` evaluations that do not lower the recorded `val_loss`. All numbers except
      `images_per_second` equal those of a run that was never stopped.
    - *Checkpoints* every `checkpoint_every` updates, and after the last and best updates. If an
      evaluation is due at the same update, the checkpoint follows it, so that a resumed run has the
      evaluation's row. After a signal, the run writes a checkpoint at the end of the update or of
      the running evaluation, and ends the process with the signal's exit code. With several
      processes, all of them end when one has noted a signal.
    - *Resuming*, even in the middle of an epoch. `fit` sets the metrics to 0, so they get back the
      values that they had at the start. On torch, making an iterator over training or evaluation
      data draws from the global generator, whose state is restored after the last batch.

    Args:
        model: The compiled model, restored from the checkpoint of update `start`.
        run: The run.
        rows: The recorded rows up to `start`.
        start: The number of updates so far.
        topology: The devices and processes of the run.
        others: Callbacks that add to the logs or log them, called before the row is recorded.
        labels: Evaluates the held-out images if `fit` cannot; None if it can.
        board: A `TensorBoard`, which gets the rows after each evaluation; None for none.

    Example:
        ```python
        with RunCallbacks(model, run, rows, start, topology, [], None, None) as watch:
            model.fit(batches, callbacks=watch, validation_data=validation)
        ```
    """

    def __init__(
        self,
        model: keras.Model,
        run: Run,
        rows: list[dict[str, float]],
        start: int,
        topology: Topology,
        others: Sequence[keras.callbacks.Callback],
        labels: EvaluateLabels | None,
        board: Any,
    ):
        super().__init__(list(others), add_history=True, model=model)
        self.run, self.config, self.topology = run, run.config, topology
        self.rows, self.step, self.labels, self.board = rows, start, labels, board
        self._open = contextlib.ExitStack()
        self.pending = 0  # batches since the last update
        self.unchecked: Any = None  # the number of an update and the loss of a batch in it
        self.metrics = []
        if start % self.config.eval_every:
            self.metrics = topology.read_replicas(model.metrics_variables)
        self.generator = generator_state()

    def __enter__(self):
        """Notes signals, shows the progress, and writes checkpoints while training goes on.

        If standard error is not a terminal, tqdm hides its bar, and each evaluation prints a line.
        """
        total, done = (steps * self.config.batch for steps in (self.config.total_steps, self.step))
        hidden = None if self.topology.is_chief else True  # None: hidden without a terminal
        options = {"unit": " images", "unit_scale": True, "mininterval": 1.0, "disable": hidden}
        bar = extras.require("tqdm").tqdm(total=total, initial=done, **options)
        self.signals = self._open.enter_context(stop_signals())
        self.bar = self._open.enter_context(bar)
        self.writer = self._open.enter_context(CheckpointWriter())
        return self

    def __exit__(self, *error):
        return self._open.__exit__(*error)

    def on_epoch_begin(self, epoch, logs=None):
        super().on_epoch_begin(epoch, logs)
        self.topology.write_replicas(self.model.metrics_variables, self.metrics)
        self.metrics = []
        self.began, self.first_step = time.perf_counter(), self.step
        self.evaluation_seconds = 0.0

    def on_train_batch_begin(self, batch, logs=None):
        super().on_train_batch_begin(batch, logs)
        self._restore_generator()
        self.first_batch = batch

    def on_train_batch_end(self, batch, logs=None):
        batches = self.pending + batch - self.first_batch + 1
        updates, self.pending = divmod(batches, self.config.optimizer.accumulation_steps)
        self.step += updates
        self.check_loss()
        self.unchecked = self.step + (self.pending > 0), logs["loss"]
        unused = keras.callbacks.Callback.on_train_batch_end
        for callback in self.callbacks:
            if getattr(callback.on_train_batch_end, "__func__", None) is not unused:
                callback.on_train_batch_end(batch, {name: to_float(logs[name]) for name in logs})
        if updates:
            self.on_update()

    def on_update(self):
        """Runs after an update, or after all updates of one execution."""
        self.bar.update(self.step * self.config.batch - self.bar.n)
        self.signals.begun = True
        self.writer.check()
        if self.step % self.config.eval_every and self.step != self.config.total_steps:
            self._save_if(self.step % self.config.checkpoint_every == 0)

    def on_test_begin(self, logs=None):
        self.check_loss()
        super().on_test_begin(logs)
        self.generator = generator_state()
        self.weights = use_average(self.model)
        self.paused = time.perf_counter()

    def on_test_end(self, logs=None):
        self._restore_generator()
        super().on_test_end(logs)  # callbacks see the average, as evaluated
        put_back(self.model, self.weights)
        self.evaluation_seconds += time.perf_counter() - self.paused

    def on_epoch_end(self, epoch, logs=None):
        logs = {name: to_float(logs[name]) for name in sorted(logs)}
        if self.labels:
            logs |= self.labels.evaluate(self)
        self.check_loss()
        for callback in self.callbacks:
            callback.on_epoch_end(epoch, logs)
        self._record(logs)
        config, shown = self.config, {n: f"{x:.4f}" for n, x in logs.items() if n in SHOWN}
        if not self.bar.disable:
            self.bar.set_postfix(shown, refresh=False)
        elif self.topology.is_chief:
            numbers = ", ".join(f"{name}={value}" for name, value in shown.items())
            speed = f"{self.rows[-1]['images_per_second']:g} images/s"
            line = f"update {self.step} of {config.total_steps}: {numbers}, {speed}"
            print(line, file=sys.stderr, flush=True)
        if self.board:
            self.board.write(self.rows)
        is_best = (runs.best_row(self.rows) or {}).get("step") == self.step
        ends = self.step == config.total_steps or self.model.stop_training
        self._save_if(self.step % config.checkpoint_every == 0 or ends or is_best)

    def on_train_end(self, logs=None):
        super().on_train_end(logs)
        self.generator = generator_state()

    def check_loss(self):
        """Raises `NonFinite` if the loss of the last batch is NaN or infinite."""
        if self.unchecked is not None:
            (step, loss), self.unchecked = self.unchecked, None
            if not math.isfinite(loss := to_float(loss)):
                raise runs.NonFinite(f"the loss of update {step} is {loss}")

    def _restore_generator(self):
        if self.generator is not None:
            set_generator_state(self.generator)
            self.generator = None

    def _record(self, logs):
        """Adds a row to the run's records."""
        seconds = time.perf_counter() - self.began - self.evaluation_seconds
        images = (self.step - self.first_step) * self.config.batch
        optimizer = inner_optimizer(self.model)
        weights = map(read_variable, self.model.trainable_variables)
        squares = sum(float(np.sum(np.square(array, dtype="float64"))) for array in weights)
        row = {
            "step": self.step,
            "learning_rate": to_float(optimizer.learning_rate),
            "gradient_norm": to_float(optimizer.gradient_norm),
            "weight_norm": math.sqrt(squares),
            "images_per_second": round(images / seconds, 1),
        }
        self.rows.append(row | logs)
        if self.topology.is_chief:
            runs.write_rows(self.run.folder, self.rows)
        if runs.out_of_patience(self.rows, self.config.patience):
            self.model.stop_training = True

    def _save_if(self, due):
        numbers = self.topology.gather(int(self.signals.number))
        if due or numbers.any():
            self.check_loss()
            kept, where = self.config.keep_checkpoints, (self.topology, self.writer)
            folder = self.run.checkpoints
            path = checkpoints.save(self.model, folder, self.step, kept, self.rows, *where)
        if numbers.any():
            self.writer.wait()
            number = min(numbers[numbers > 0])  # a launcher may send SIGTERM after Ctrl-C
            print(
                f"stopped by {NAMES[number]} after update {self.step} of "
                f"{self.config.total_steps}, checkpoint {path}: "
                "the same command continues from there",
                file=sys.stderr,
            )
            raise SystemExit(SIGNALED + int(number))
