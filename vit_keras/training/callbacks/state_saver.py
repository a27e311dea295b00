"""Decides when a run writes checkpoints."""

import sys

from vit_keras.runs import Run
from vit_keras.training import checkpoints
from vit_keras.training.callbacks.recorder import Recorder
from vit_keras.training.callbacks.steps import StepCounter
from vit_keras.training.callbacks.stop_on_nonfinite import StopOnNonFinite
from vit_keras.training.distribution import ALONE, Topology
from vit_keras.training.metrics_table import best_row

SIGTERM_EXIT = 128 + 15  # the exit code that a shell reports for a process that SIGTERM ended


class StateSaver(StepCounter):
    """Writes a checkpoint every `checkpoint_every` updates, after the last and after the best.

    If an evaluation is due at the same update, the checkpoint follows it, so that a resumed run has
    its row. When `signals` holds a SIGTERM, the callback writes a checkpoint at the end of the
    update, after an evaluation that is running or due, and ends the process with exit code 143.
    Several processes all end as soon as one of them has the signal.

    Args:
        run: The run.
        recorder: The callback that records the evaluations; it must run earlier in the list.
        loss_check: The callback that checks the last loss before it is saved.
        signals: a list that collects SIGTERM.
        topology: The devices and processes of the run.
    """

    def __init__(
        self,
        run: Run,
        recorder: Recorder,
        loss_check: StopOnNonFinite,
        signals: list,
        topology: Topology = ALONE,
    ):
        super().__init__(run, recorder.step)
        self.folder, self.recorder, self.signals = run.checkpoints, recorder, signals
        self.loss_check, self.topology = loss_check, topology

    def on_step(self, logs):
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

    def _save_if(self, due):
        stops = self.topology.gather(len(self.signals)).any()
        if due or stops:
            self.loss_check.check()
            best = best_row(self.recorder.rows)
            best = best and {name: best[name] for name in ("step", "val_accuracy")}
            keep = self.config.keep_checkpoints
            path = checkpoints.save(self.model, self.folder, self.step, keep, best, self.topology)
        if stops:
            print(
                f"stopped by SIGTERM after update {self.step} of {self.config.total_steps}, "
                f"checkpoint {path}: the same command goes on from there",
                file=sys.stderr,
            )
            raise SystemExit(SIGTERM_EXIT)
