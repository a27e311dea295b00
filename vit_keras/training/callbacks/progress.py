"""The progress of a run: a bar in a terminal, and otherwise a line for each evaluation."""

import sys
from typing import Any

from vit_keras import extras
from vit_keras.runs import Run
from vit_keras.tasks import KINDS
from vit_keras.training.callbacks.recorder import Recorder
from vit_keras.training.callbacks.steps import StepCounter

METRICS = tuple(kind.metric for kind in KINDS.values())
SHOWN = ("loss", *METRICS, "val_loss", *(f"val_{name}" for name in METRICS))


class Progress(StepCounter):
    """Shows the loss, the accuracy, and images per second on standard error.

    A terminal gets a bar of tqdm with the remaining time as well. A file or a pipe gets one line
    for each evaluation.

    Args:
        run: The run.
        recorder: The callback that measures the images per second; it runs earlier in the list.
    """

    def __init__(self, run: Run, recorder: Recorder):
        super().__init__(run, recorder.step)
        self.recorder = recorder
        self.bar: Any = None

    def on_train_begin(self, logs=None):
        if self.bar is None and sys.stderr.isatty():
            tqdm = extras.require("tqdm", extra="train", purpose="The progress bar").tqdm
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
