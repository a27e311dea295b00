"""A run that compiles quickly: a dense layer after dropout, on data that depend on the step."""

import contextlib
import json
import pathlib
import shutil
from typing import NamedTuple

import keras
import numpy as np
import pytest

from tests.training.kill import model_differences
from vit_keras.config import Config, ModelConfig, OptimizerConfig, parse_config
from vit_keras.data.batches import Batches
from vit_keras.experiments import train_run
from vit_keras.runs import open_run
from vit_keras.training import checkpoints
from vit_keras.training.loop import compile_model, train

CLASSES, SIDE, HELD_OUT = 3, 4, 48
# Six updates of a small model on any data.
SHARED = {"batch": 8, "batch_eval": 24, "total_steps": 6, "eval_every": 3, "checkpoint_every": 2}
SHARED |= {"model.dropout_rate": 0.1, "kernels": "default"}
SHARED |= {"optimizer.learning_rate": 0.01, "optimizer.warmup_steps": 0}
SIZES = {"model.hidden_size": 16, "model.num_heads": 2, "model.mlp_dim": 24}
SIZES |= {"model.num_layers": 1, "model.patch_size": 8}
RATE = 0.02


def small_config(folder, **fields):
    """12 updates, evaluated every 4; `fields` and its `optimizer` change the configuration."""
    shared = {"total_steps": 12, "eval_every": 4, "checkpoint_every": 3, "batch": 8, "seed": 1}
    optimizer = {"learning_rate": RATE, **fields.pop("optimizer", {})}
    return Config(
        workdir=str(folder),
        model=ModelConfig(image_size=SIDE, dropout_rate=fields.pop("dropout_rate", 0.3)),
        optimizer=OptimizerConfig(**optimizer),
        **{**shared, **fields},
    )


def small_model(config):
    keras.utils.set_random_seed(config.seed)
    images = keras.Input((SIDE, SIDE, 1))
    x = keras.layers.Dropout(config.model.dropout_rate, seed=5)(keras.layers.Flatten()(images))
    model = keras.Model(images, keras.layers.Dense(CLASSES, name="head")(x))
    model.get_layer("head").set_weights(
        [
            0.1 * np.random.default_rng(0).normal(size=v.shape)
            for v in model.get_layer("head").weights
        ]
    )
    compile_model(model, config)
    return model


def examples(count, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    images = rng.normal(size=(count, SIDE, SIDE, 1)).astype("float32")
    images[np.arange(count), labels, labels] += 2.0
    return images, np.eye(CLASSES, dtype="float32")[labels]


def small_batches(config, change=lambda images, part: images):
    """Returns `batches(start)`; `change(images, number)` may change the images of a batch."""
    parts = config.optimizer.accumulation_steps
    size = config.batch // parts

    def batches(start):
        made = []
        for part in range(start, config.total_steps * parts):
            images, labels = examples(config.batch, part // parts)
            mine = slice(part % parts * size, (part % parts + 1) * size)
            made.append((change(images[mine], part), labels[mine]))
        return batches_of(made)

    return batches


def held_out():
    images, labels = examples(HELD_OUT, 1000)
    return batches_of([(images[i : i + 8], labels[i : i + 8]) for i in range(0, HELD_OUT, 8)])


def batches_of(made):
    """The batches of a list."""
    return Batches(lambda number, each: made[number], len(made))


def small_run(folder, change=lambda images, part: images, wrap=lambda batches: batches, **fields):
    """Trains or resumes a run; returns (model, run, rows)."""
    config = small_config(folder, **fields)
    model, run = small_model(config), open_run(config)
    rows = train(model, run, wrap(small_batches(config, change)), held_out())
    return model, run, rows


def state(folder, step):
    """All arrays in a checkpoint of a run, by name."""
    with np.load(folder / "checkpoints" / f"step_{step:09d}" / "state.npz") as arrays:
        return dict(arrays)


def assert_same_state(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def without_rate(rows):
    """The rows without the numbers that depend on the clock."""
    return [{k: v for k, v in row.items() if k != "images_per_second"} for row in rows]


def rows_of(folder):
    """The recorded rows of a run, as `without_rate`."""
    return without_rate(json.loads((folder / "metrics.json").read_text()))


def by_path(folder, step):
    """The arrays in a checkpoint of a run, by the paths of their variables."""
    path = folder / "checkpoints" / f"step_{step:09d}"
    meta = checkpoints.read_meta(path)
    with checkpoints.State(path, meta) as read:
        return {path: read[name] for name, (path, *_) in meta["variables"].items()}


class Killed(Exception):
    """Stands for the end of a process."""


@contextlib.contextmanager
def killed_after_a_save():
    """A run that is trained inside ends with its first checkpoint."""
    save = checkpoints.save

    def save_and_die(*arguments, **options):
        save(*arguments, **options)
        raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(checkpoints, "save", save_and_die)
        yield


def copy_as_killed(folder, copy, step):
    """Copies a run as it was when a kill came after the checkpoint of an update."""
    shutil.copytree(folder, copy)
    for path in (copy / "checkpoints").glob("step_*"):
        if int(path.name.removeprefix("step_")) > step:
            shutil.rmtree(path)
    for name in ("model.keras", "report.json"):
        (copy / name).unlink(missing_ok=True)
    return copy


def configured(fields, folder="unused"):
    fields = SHARED | fields | {"workdir": folder}
    return parse_config([f"--{name}={value}" for name, value in fields.items()], default="")


class Trained(NamedTuple):
    """A run that was never stopped."""

    folder: pathlib.Path
    report: dict
    fields: dict

    def again(self, folder, **fields):
        return train_run(configured(self.fields | fields, folder))


def trainer(tmp_path_factory, kinds):
    """A function that trains a kind of run once; `kinds` give its fields for a folder."""
    made = {}

    def trained(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            fields = kinds[kind](folder)
            report = train_run(configured(fields, folder / "run"))
            made[kind] = Trained(folder / "run", report, fields)
        return made[kind]

    return trained


def assert_killed_run_is(trained, folder):
    """A run that dies after the checkpoint of update 2, within an epoch, ends with the same bits.

    Returns the rows of both.
    """
    with killed_after_a_save():
        trained.again(folder)
    assert checkpoints.newest(folder / "checkpoints").name == "step_000000002"
    assert trained.again(folder) == trained.report
    assert not model_differences(trained.folder, folder)
    return assert_same_run(trained.folder, folder, 6)


def assert_same_run(folder, other, step):
    """Two folders have the same bits and the same rows; returns the rows."""
    assert_same_state(state(folder, step), state(other, step))
    assert rows_of(folder) == rows_of(other)
    return rows_of(folder)
