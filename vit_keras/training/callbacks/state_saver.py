"""When checkpoints are written."""

import pathlib
import sys

from vit_keras.training import checkpoints
from vit_keras.training.callbacks.recorder import Recorder
from vit_keras.training.callbacks.steps import StepCounter
from vit_keras.training.callbacks.stop_on_nonfinite import StopOnNonFinite
from vit_keras.training.distribution import ALONE, Topology
from vit_keras.training.metrics_table import best_row

SIGTERM_EXIT = 128 + 15  # what a shell reports of a process that SIGTERM ended


class StateSaver(StepCounter):
    """A checkpoint every `checkpoint_every` updates, after the last one and after the best.

    One that falls on an evaluation is written after it, so that a resumed run has its row. After
    SIGTERM, which `signals` then lists, one is written at the end of the update, after an
    evaluation that is running or due, and the process leaves with exit code 143; of several
    processes all do as soon as one has the signal.
    """

    def __init__(
        self,
        config,
        start_step: int,
        folder: pathlib.Path,
        recorder: Recorder,
        losses: StopOnNonFinite,
        signals,
        topology: Topology = ALONE,
    ):
        super().__init__(config, start_step)
        self.folder, self.recorder, self.signals = folder, recorder, signals
        self.losses, self.topology = losses, topology

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
            self.losses.look()
            best = best_row(self.recorder.rows)
            best = best and {name: best[name] for name in ("step", "val_accuracy")}
            kept = self.config.keep_checkpoints
            path = checkpoints.save(self.model, self.folder, self.step, kept, best, self.topology)
        if stops:
            print(
                f"stopped by SIGTERM after update {self.step} of {self.config.total_steps}, "
                f"checkpoint {path}: the same command goes on from there",
                file=sys.stderr,
            )
            raise SystemExit(SIGTERM_EXIT)
