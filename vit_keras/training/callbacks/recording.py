"""The rows of a run, one an evaluation, in `metrics.csv` and `metrics.json`."""

import csv
import io
import json
import math
import pathlib
import time

import keras
import numpy as np

from vit_keras.files import write_text
from vit_keras.training.averages import inner_optimizer
from vit_keras.training.callbacks.steps import StepCounter, number
from vit_keras.training.distribution import ALONE, Topology, read


class Recorder(StepCounter):
    """Adds a row at each evaluation.

    A resumed run keeps the rows up to the checkpoint that it goes on from. All numbers but
    `images_per_second` are those of a run that was never stopped.
    """

    def __init__(self, config, start_step: int, folder: pathlib.Path, topology: Topology = ALONE):
        super().__init__(config, start_step)
        self.folder, self.topology = folder, topology
        self.rows = [row for row in read_rows(folder) if row["step"] <= start_step]

    def on_epoch_begin(self, epoch, logs=None):
        self.began, self.first_step = time.perf_counter(), self.step
        self.evaluated = 0.0

    def on_test_begin(self, logs=None):
        self.paused = time.perf_counter()

    def on_test_end(self, logs=None):
        self.evaluated += time.perf_counter() - self.paused

    def on_epoch_end(self, epoch, logs=None):
        seconds = time.perf_counter() - self.began - self.evaluated
        images = (self.step - self.first_step) * self.config.batch
        optimizer = inner_optimizer(self.model)
        row = {
            "step": self.step,
            "learning_rate": number(optimizer.learning_rate),
            "gradient_norm": number(optimizer.gradient_norm),
            "weight_norm": weight_norm(self.model),
            "images_per_second": round(images / seconds, 1),
            **logs,
        }
        self.rows.append(row)
        if self.topology.is_chief:
            write_rows(self.folder, self.rows)


def weight_norm(model: keras.Model) -> float:
    """The Euclidean norm of all trainable weights together."""
    arrays = map(read, model.trainable_variables)
    return math.sqrt(sum(float(np.sum(np.square(a, dtype="float64"))) for a in arrays))


def read_rows(folder: pathlib.Path) -> list[dict[str, float]]:
    """The rows recorded so far in a run's folder."""
    path = folder / "metrics.json"
    return json.loads(path.read_text()) if path.exists() else []


def write_rows(folder: pathlib.Path, rows: list[dict[str, float]]) -> None:
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "metrics.csv", text.getvalue())
    write_text(folder / "metrics.json", json.dumps(rows, indent=1))


def best_row(rows: list[dict[str, float]]) -> dict[str, float] | None:
    """The row of the best `val_accuracy`, the earliest of equals; None before an evaluation."""
    rows = [row for row in rows if "val_accuracy" in row]
    return max(rows, key=lambda row: row["val_accuracy"], default=None)


def out_of_patience(rows: list[dict[str, float]], patience: int | None) -> bool:
    """Whether the last `patience` evaluations brought no `val_loss` below all before them."""
    losses = [row["val_loss"] for row in rows if "val_loss" in row]
    if patience is None or not losses:
        return False
    best = min(range(len(losses)), key=lambda i: (math.isnan(losses[i]), losses[i]))
    return len(losses) - 1 - best >= patience
