"""Stops a run that no longer improves."""

import keras

from vit_keras.runs import Run
from vit_keras.training.callbacks.recorder import Recorder
from vit_keras.training.metrics_table import out_of_patience


class Patience(keras.callbacks.Callback):
    """Stops after `patience` evaluations without a lower `val_loss` in the recorded rows."""

    def __init__(self, run: Run, recorder: Recorder):
        super().__init__()
        self.patience, self.recorder = run.config.patience, recorder

    def on_epoch_end(self, epoch, logs=None):
        if out_of_patience(self.recorder.rows, self.patience):
            self.model.stop_training = True
