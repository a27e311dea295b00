"""The progress bar of a run."""

from typing import Any

from vit_keras import extras
from vit_keras.runs import Run
from vit_keras.training.callbacks.steps import StepCounter

SHOWN = ("loss", "accuracy", "val_loss", "val_accuracy")


class Progress(StepCounter):
    """Shows images per second and the remaining time in a bar of tqdm."""

    def __init__(self, run: Run, start_step: int):
        super().__init__(run, start_step)
        self.bar: Any = None

    def on_train_begin(self, logs=None):
        tqdm = extras.require("tqdm", extra="train", purpose="The progress bar").tqdm
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
