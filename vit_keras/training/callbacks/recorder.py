"""Records a row of metrics at each evaluation."""

import math
import time

import keras
import numpy as np

from vit_keras.json_files import read_json
from vit_keras.runs import Run
from vit_keras.training.callbacks.steps import StepCounter, to_float
from vit_keras.training.distribution import ALONE, Topology, read_variable
from vit_keras.training.metrics_table import read_rows, write_rows
from vit_keras.training.rollbacks import read_rollbacks
from vit_keras.training.weight_average import inner_optimizer


class Recorder(StepCounter):
    """Adds a row to `metrics.csv` and `metrics.json` at each evaluation.

    A resumed run keeps the rows up to the checkpoint that it starts from. All numbers except
    `images_per_second` equal those of a run that was never stopped.
    """

    def __init__(self, run: Run, start_step: int, topology: Topology = ALONE):
        super().__init__(run, start_step)
        self.folder, self.topology = run.folder, topology
        path = run.checkpoints / f"step_{start_step:09d}" / "meta.json"
        meta = read_json(path) if path.exists() else {}
        read_rollbacks(run.folder, meta.get("rollbacks", 0))  # by which the rate was halved
        rows = read_rows(run.folder, meta.get("rows", 0))
        self.rows = [row for row in rows if row["step"] <= start_step]
        if self.rows and topology.is_chief:
            write_rows(run.folder, self.rows)  # also what was lost or damaged of them

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
        row = {
            "step": self.step,
            "learning_rate": to_float(optimizer.learning_rate),
            "gradient_norm": to_float(optimizer.gradient_norm),
            "weight_norm": weight_norm(self.model),
            "images_per_second": round(images / seconds, 1),
            **logs,
        }
        self.rows.append(row)
        if self.topology.is_chief:
            write_rows(self.folder, self.rows)


def weight_norm(model: keras.Model) -> float:
    """Returns the Euclidean norm of all trainable weights together."""
    arrays = map(read_variable, model.trainable_variables)
    return math.sqrt(sum(float(np.sum(np.square(a, dtype="float64"))) for a in arrays))
