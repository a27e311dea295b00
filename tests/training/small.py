"""A run that compiles quickly: a dense layer after dropout, on data that depend on the step."""

import contextlib
import json
import shutil

import keras
import numpy as np
import pytest

from vit_keras.config import Config, ModelConfig, OptimizerConfig, parse_config
from vit_keras.data.batches import Batches
from vit_keras.experiments import train_run
from vit_keras.runs import open_run
from vit_keras.training import checkpoints
from vit_keras.training.loop import compile_model, train

CLASSES, SIDE, HELD_OUT = 3, 4, 48
# A run on boxes or masks: six updates of a model of two blocks.
OF_PLACES = {
    "model.hidden_size": 16,
    "model.num_layers": 2,
    "model.num_heads": 2,
    "model.mlp_dim": 24,
    "model.classifier": "gap",
    "augment.flip": "true",
    "augment.shift": 0.1,
    "batch": 4,
    "batch_eval": 3,
    "total_steps": 6,
    "eval_every": 3,
    "checkpoint_every": 2,
    "kernels": "default",
    "optimizer.learning_rate": 0.01,
    "optimizer.ema_decay": 0.5,
}
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


def by_path(folder, step):
    """The arrays in a checkpoint of a run, by the paths of their variables."""
    meta = json.loads((folder / "checkpoints" / f"step_{step:09d}" / "meta.json").read_text())
    return {meta["variables"][n][0]: array for n, array in state(folder, step).items() if "/" in n}


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
    for name in ("model.keras", "report.json", "metrics.json", "metrics.csv"):
        (copy / name).unlink(missing_ok=True)
    return copy


def train_places(folder, photos, fields):
    """Trains a run on the boxes or masks of a folder; returns its report."""
    fields = OF_PLACES | {"dataset": f"folder:{photos}", "workdir": folder} | fields
    arguments = [f"--{name}={value}" for name, value in fields.items()]
    return train_run(parse_config(arguments, default=""))


def assert_killed_run_is(trained, train, folder):
    """It dies after the checkpoint of update 2, which lies between two evaluations."""
    straight, report = trained
    with killed_after_a_save():
        train(folder)
    assert checkpoints.newest(folder / "checkpoints").name == "step_000000002"
    assert train(folder) == report
    return assert_same_run(straight, folder, 6)


def assert_same_run(folder, other, step):
    """Two folders have the same bits and the same rows; returns the rows."""
    assert_same_state(state(folder, step), state(other, step))
    rows = [json.loads((place / "metrics.json").read_text()) for place in (folder, other)]
    assert without_rate(rows[0]) == without_rate(rows[1])
    return rows[0]
