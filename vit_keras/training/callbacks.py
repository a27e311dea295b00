"""What looks on while `model.fit` trains: progress, records, checkpoints."""

import csv
import io
import json
import pathlib
import time

import keras

from vit_keras.runs import write_text
from vit_keras.training import checkpoints


class StepCounter(keras.callbacks.Callback):
    """Base: `step` counts updates since the beginning of the run, over all calls of `fit`."""

    def __init__(self, start_step: int):
        super().__init__()
        self.step = start_step

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        self.on_step(logs)

    def on_step(self, logs):
        """Called after each update."""


class Progress(StepCounter):
    """A bar with images per second and the time left, by tqdm."""

    def __init__(self, start_step: int, total_steps: int, batch: int):
        super().__init__(start_step)
        self.total, self.batch, self.bar, self.shown = total_steps * batch, batch, None, {}

    def on_train_begin(self, logs=None):
        from tqdm import tqdm

        if self.bar is None:
            done = self.step * self.batch
            self.bar = tqdm(
                total=self.total, initial=done, unit=" images", unit_scale=True, mininterval=1.0
            )

    def on_step(self, logs):
        self.bar.update(self.batch)

    def on_epoch_end(self, epoch, logs=None):
        self.shown = {k: f"{v:.4f}" for k, v in (logs or {}).items() if k in SHOWN}
        self.bar.set_postfix(self.shown, refresh=False)

    def close(self):
        if self.bar is not None:
            self.bar.close()


SHOWN = ("loss", "accuracy", "val_loss", "val_accuracy")


class Recorder(StepCounter):
    """One row an evaluation, in `metrics.csv` and `metrics.json`.

    A resumed run keeps the rows up to the checkpoint that it goes on from.
    """

    def __init__(self, folder: pathlib.Path, start_step: int, batch: int):
        super().__init__(start_step)
        self.folder, self.batch = folder, batch
        self.rows = [row for row in read_rows(folder) if row["step"] <= start_step]

    def on_epoch_begin(self, epoch, logs=None):
        self.began, self.first = time.perf_counter(), self.step
        self.evaluated = 0.0

    def on_test_begin(self, logs=None):
        self.paused = time.perf_counter()

    def on_test_end(self, logs=None):
        self.evaluated += time.perf_counter() - self.paused

    def on_epoch_end(self, epoch, logs=None):
        seconds = time.perf_counter() - self.began - self.evaluated
        rate = self.model.optimizer.learning_rate
        row = {
            "step": self.step,
            "learning_rate": float(keras.ops.convert_to_numpy(rate)),
            "images_per_second": round((self.step - self.first) * self.batch / seconds, 1),
            **{name: float(value) for name, value in (logs or {}).items()},
        }
        self.rows.append(row)
        write_rows(self.folder, self.rows)


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


class Checkpoints(StepCounter):
    """A checkpoint every `checkpoint_every` updates and after the last one.

    One that is due with an evaluation is written after it, so that a resumed run has its row.
    """

    def __init__(self, folder: pathlib.Path, start_step: int, config):
        super().__init__(start_step)
        self.folder, self.config = folder, config

    def on_step(self, logs):
        if self.step % self.config.eval_every and self.step != self.config.total_steps:
            self._save_if_due()

    def on_epoch_end(self, epoch, logs=None):
        self._save_if_due()

    def _save_if_due(self):
        if self.step % self.config.checkpoint_every == 0 or self.step == self.config.total_steps:
            checkpoints.save(self.model, self.folder, self.step, self.config.keep_checkpoints)
