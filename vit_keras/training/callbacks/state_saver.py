"""Decides when a run writes checkpoints."""

import sys

from vit_keras.runs import Run
from vit_keras.training import checkpoints, stop_signals
from vit_keras.training.callbacks.recorder import Recorder
from vit_keras.training.callbacks.steps import StepCounter
from vit_keras.training.callbacks.stop_on_nonfinite import StopOnNonFinite
from vit_keras.training.checkpoint_writer import CheckpointWriter
from vit_keras.training.distribution import ALONE, Topology
from vit_keras.training.metrics_table import best_name, best_row


class StateSaver(StepCounter):
    """Writes a checkpoint every `checkpoint_every` updates, after the last and after the best.

    If an evaluation is due at the same update, the checkpoint follows it, so that a resumed run has
    its row. When `signals` has one, the callback writes a checkpoint at the end of the update and
    ends the process with the signal's exit code. An evaluation is given up; the resumed run makes
    it. Several processes all end as soon as one of them has a signal, after an evaluation.

    Args:
        run: The run.
        recorder: The callback that records the evaluations; it must run earlier in the list.
        loss_check: The callback that checks the last loss before it is saved.
        signals: Notes SIGTERM and Ctrl-C.
        writer: Writes the checkpoints while training goes on.
        topology: The devices and processes of the run.
    """

    def __init__(
        self,
        run: Run,
        recorder: Recorder,
        loss_check: StopOnNonFinite,
        signals: stop_signals.StopSignals,
        writer: CheckpointWriter,
        topology: Topology = ALONE,
    ):
        super().__init__(run, recorder.step)
        self.folder, self.recorder, self.signals = run.checkpoints, recorder, signals
        self.loss_check, self.writer, self.topology = loss_check, writer, topology

    def on_step(self, logs):
        self.signals.begun = True
        self.writer.check()
        if self.step % self.config.eval_every and self.step != self.config.total_steps:
            self._save_if(self.step % self.config.checkpoint_every == 0)

    def on_epoch_end(self, epoch, logs=None):
        best = best_row(self.recorder.rows)
        self._save_if(
            self.step % self.config.checkpoint_every == 0
            or self.step == self.config.total_steps
            or self.model.stop_training
            or (best is not None and best["step"] == self.step)
        )

    def on_test_begin(self, logs=None):
        if self.topology.process_count == 1:  # several processes give no evaluation up
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
            best = best_row(self.recorder.rows)
            best = best and {name: best[name] for name in ("step", best_name(best))}
            keep, rows = self.config.keep_checkpoints, len(self.recorder.rows)
            path = checkpoints.save(
                self.model, self.folder, self.step, keep, best, self.topology, self.writer, rows
            )
        if numbers.any():
            self.writer.wait()
            number = min(numbers[numbers > 0])  # a launcher may send SIGTERM after Ctrl-C
            updates = f"update {self.step} of {self.config.total_steps}"
            print(
                f"stopped by {stop_signals.NAMES[number]} after {updates}, checkpoint {path}: "
                "the same command goes on from there",
                file=sys.stderr,
            )
            raise SystemExit(stop_signals.EXIT_CODES[number])
