"""Callbacks for `model.fit`: counts of updates, records, checkpoints, progress, early stopping."""

import contextlib
import math
import signal
import sys
import threading
import time
from typing import Any

import keras
import numpy as np

from vit_keras import runs
from vit_keras.runs import Run
from vit_keras.support import command_line, extras
from vit_keras.support.checks import read_json
from vit_keras.support.tasks import KINDS
from vit_keras.training import checkpoints
from vit_keras.training.checkpoints import CheckpointWriter, generator_state, set_generator_state
from vit_keras.training.metrics import to_float
from vit_keras.training.optimizers import inner_optimizer, put_back, use_average
from vit_keras.training.topologies import ALONE, Topology, read_variable


class StepCounter(keras.callbacks.Callback):
    """Base class whose `step` counts updates since the beginning of the run.

    An update takes `optimizer.accumulation_steps` batches of `fit`. `fit` calls the callback once
    every `model.steps_per_execution` batches.
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
    """The callbacks of one call of `fit`. They do not wait for each batch to finish.

    Keras copies a batch's logs to the host for every callback, so it waits for the batch to finish
    before it prepares the next one. Here, a `StepCounter` gets the backend's tensors, and
    numbers go only to other callbacks that use a batch's logs.
    """

    def on_train_batch_end(self, batch, logs=None):
        unused = keras.callbacks.Callback.on_train_batch_end
        for callback in self.callbacks:
            if isinstance(callback, StepCounter):
                callback.on_train_batch_end(batch, logs)
            elif getattr(callback.on_train_batch_end, "__func__", None) is not unused:
                callback.on_train_batch_end(batch, {name: to_float(logs[name]) for name in logs})


SIGNALED = 128  # a shell reports this plus the number of the signal that ended a process
NAMES = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}


class StopSignals:
    """The signals that ask a run to stop at the end of an update.

    Attributes:
        number: The number of the first signal, or 0.
        begun: Whether an update has ended. Until then there is nothing to lose, and Ctrl-C has its
            usual effect.
    """

    def __init__(self):
        self.number, self.begun = 0, False

    @contextlib.contextmanager
    def collected(self):
        """In a `with` block, notes the first signal; a second one has its usual effect."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may set handlers
            return
        previous = {number: signal.getsignal(number) for number in NAMES}

        def collect(number, _):
            signal.signal(number, previous[number])
            if number == signal.SIGINT and not self.begun:
                signal.raise_signal(number)
                return
            self.number = self.number or number
            if number == signal.SIGINT:
                command_line.set_exit_code(SIGNALED + number)  # the next signal ends the process

        for number, handler in previous.items():
            if handler is not signal.SIG_IGN:  # a shell makes background jobs ignore Ctrl-C
                signal.signal(number, collect)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


class Recorder(StepCounter):
    """Adds a row to `metrics.csv` and `metrics.json` at each evaluation.

    Training stops after `patience` evaluations that do not lower the recorded `val_loss`.

    A resumed run keeps the rows up to the checkpoint that it starts from. All numbers except
    `images_per_second` equal those of a run that was never stopped.
    """

    def __init__(self, run: Run, start_step: int, topology: Topology = ALONE):
        super().__init__(run, start_step)
        self.run, self.topology = run, topology
        path = run.checkpoints / f"step_{start_step:09d}" / "meta.json"
        meta = read_json(path) if path.exists() else {}
        runs.read_rollbacks(run.folder, meta.get("rollbacks", 0))  # each halved the rate
        rows = runs.read_rows(run.folder, meta.get("rows", 0))
        self.rows = [row for row in rows if row["step"] <= start_step]
        if self.rows:
            self._write()

    def on_epoch_begin(self, epoch, logs=None):
        self.began, self.first_step = time.perf_counter(), self.step
        self.evaluation_seconds = 0.0

    def on_test_begin(self, logs=None):
        self.paused = time.perf_counter()

    def on_test_end(self, logs=None):
        self.evaluation_seconds += time.perf_counter() - self.paused

    def on_epoch_end(self, epoch, logs=None):
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
            **logs,
        }
        self.rows.append(row)
        self._write()
        if runs.out_of_patience(self.rows, self.config.patience):
            self.model.stop_training = True

    def _write(self):
        if self.topology.is_chief:
            runs.write_rows(self.run.folder, self.rows)


METRICS = tuple(kind.metric for kind in KINDS.values())
SHOWN = ("loss", *METRICS, "val_loss", *(f"val_{name}" for name in METRICS))


class Progress(StepCounter):
    """Shows the loss, the accuracy, and images per second on standard error.

    On a terminal, it also shows a tqdm bar with the remaining time. In a file or a pipe, it writes
    one line for each evaluation.

    Args:
        recorder: The callback that measures images per second; it must run earlier in the list.
    """

    def __init__(self, recorder: Recorder):
        super().__init__(recorder.run, recorder.step)
        self.recorder = recorder
        self.bar: Any = None

    def on_train_begin(self, logs=None):
        if self.bar is None and sys.stderr.isatty():
            tqdm = extras.require("tqdm").tqdm
            total, done = (n * self.config.batch for n in (self.config.total_steps, self.step))
            self.bar = tqdm(
                total=total, initial=done, unit=" images", unit_scale=True, mininterval=1.0
            )

    def on_step(self, logs):
        if self.bar is not None:
            self.bar.update(self.step * self.config.batch - self.bar.n)

    def on_epoch_end(self, epoch, logs=None):
        shown = {name: f"{value:.4f}" for name, value in logs.items() if name in SHOWN}
        if self.bar is not None:
            self.bar.set_postfix(shown, refresh=False)
            return
        numbers = ", ".join(f"{name}={value}" for name, value in shown.items())
        speed = self.recorder.rows[-1]["images_per_second"]
        line = f"update {self.step} of {self.config.total_steps}: {numbers}, {speed:g} images/s"
        print(line, file=sys.stderr, flush=True)

    def close(self):
        if self.bar is not None:
            self.bar.close()


class EvaluateAverage(keras.callbacks.Callback):
    """Evaluates the average of the weights if the optimizer keeps one (`ema_decay`).

    Afterward, the weights are restored bit for bit. Keras' `SwapEMAWeights` does not ensure this:
    on TensorFlow it swaps by addition, and on torch its copy is a view of the overwritten weights.
    """

    def on_test_begin(self, logs=None):
        self.weights = use_average(self.model)

    def on_test_end(self, logs=None):
        put_back(self.model, self.weights)


class RestoreFitState(keras.callbacks.Callback):
    """Lets `fit` continue a run, even in the middle of an epoch, as if it had not been stopped.

    `fit` sets the metrics to 0; this callback restores the values that they had when it was
    created. On torch, making an iterator over training or evaluation data draws from the global
    generator; this callback restores the generator's state after the last batch.
    """

    def __init__(self, run: Run, start_step: int, model: keras.Model, topology: Topology = ALONE):
        super().__init__()
        self.metrics, self.topology = [], topology
        if start_step % run.config.eval_every:
            self.metrics = topology.read_replicas(model.metrics_variables)
        self.generator = generator_state()

    def on_epoch_begin(self, epoch, logs=None):
        self.topology.write_replicas(self.model.metrics_variables, self.metrics)
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


class PatchKeepRates(keras.callbacks.Callback):
    """Applies each of `patch_keep_rates` to the layer `patch_dropout` for an equal part of the run.

    A rate applies from the first epoch (of `eval_every` updates) that begins in its interval of the
    run, regardless of whether the run was stopped. Every rate gives a different number of tokens,
    so the model compiles once for each.
    """

    def __init__(self, run: Run):
        super().__init__()
        self.config = run.config

    def rate(self, epoch: int) -> float:
        """Returns the rate for an epoch; epochs are counted from 0."""
        rates = self.config.patch_keep_rates
        part = epoch * self.config.eval_every * len(rates) // self.config.total_steps
        return rates[min(part, len(rates) - 1)]

    def on_epoch_begin(self, epoch, logs=None):
        if min(self.config.patch_keep_rates, default=1) == 1:
            return
        layer = self.model.get_layer("patch_dropout")
        if layer.keep_rate != self.rate(epoch):
            layer.keep_rate = self.rate(epoch)
            self.model.make_train_function(force=True)


class StopOnNonFinite(StepCounter):
    """Raises `NonFinite` after a batch whose loss is NaN or infinite.

    A batch's loss is checked after the next batch has been sent to the device, so that the device
    need not wait, but before anything is saved. The logs of `fit` cannot be used: they hold the
    mean over the epoch so far, which stays NaN after one such loss.
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
        """Checks the loss of the last batch immediately."""
        if self.unchecked is not None:
            (step, loss), self.unchecked = self.unchecked, None
            if not math.isfinite(loss := to_float(loss)):
                raise runs.NonFinite(f"the loss of update {step} is {loss}")


class StateSaver(StepCounter):
    """Writes a checkpoint every `checkpoint_every` updates, and after the last and best updates.

    If an evaluation is due at the same update, the checkpoint follows it, so that a resumed run has
    the evaluation's row. When `signals` has noted a signal, the callback writes a checkpoint at
    the end of the update and ends the process with the signal's exit code. It stops a running
    evaluation, which the resumed run repeats. With several processes, all of them end when one has
    noted a signal, but they finish a running evaluation first.

    Args:
        recorder: The callback that records the evaluations; it must run earlier in the list.
        loss_check: The callback that checks the last loss before it is saved.
        signals: The object that notes SIGTERM and Ctrl-C.
        writer: Writes the checkpoints while training goes on.
    """

    def __init__(
        self, recorder: Recorder, loss_check: StopOnNonFinite, signals, writer: CheckpointWriter
    ):
        super().__init__(recorder.run, recorder.step)
        self.recorder, self.topology = recorder, recorder.topology
        self.loss_check, self.signals, self.writer = loss_check, signals, writer

    def on_step(self, logs):
        self.signals.begun = True
        self.writer.check()
        if self.step % self.config.eval_every and self.step != self.config.total_steps:
            self._save_if(self.step % self.config.checkpoint_every == 0)

    def on_epoch_end(self, epoch, logs=None):
        is_best = (runs.best_row(self.recorder.rows) or {}).get("step") == self.step
        ends = self.step == self.config.total_steps or self.model.stop_training
        self._save_if(self.step % self.config.checkpoint_every == 0 or ends or is_best)

    def on_test_begin(self, logs=None):
        if self.topology.process_count == 1:  # several processes finish their evaluation
            self.sums = self.topology.read_replicas(self.model.metrics_variables)  # of training

    def on_test_batch_end(self, batch, logs=None):
        if self.signals.number and self.topology.process_count == 1:
            self.model.stop_evaluating = True

    def on_test_end(self, logs=None):
        if self.model.stop_evaluating:
            self.topology.write_replicas(self.model.metrics_variables, self.sums)
            self._save_if(True)

    def _save_if(self, due):
        numbers = self.topology.gather(int(self.signals.number))
        if due or numbers.any():
            self.loss_check.check()
            kept, rows = self.config.keep_checkpoints, self.recorder.rows
            folder, threads = self.recorder.run.checkpoints, (self.topology, self.writer)
            path = checkpoints.save(self.model, folder, self.step, kept, rows, *threads)
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
