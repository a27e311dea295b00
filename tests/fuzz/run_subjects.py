"""Files of a run's folder and of an export, as subjects: what they hold, and what reads them."""

import hashlib
import json
import types

import numpy as np

from vit_keras.config import Config
from vit_keras.data import from_arrays
from vit_keras.data.sources import RECORD, check_unchanged
from vit_keras.evaluation.predictors import _manifest_of
from vit_keras.experiments.run_model import Record
from vit_keras.runs import Run, best_row, out_of_patience, read_rows
from vit_keras.support.checks import read_json
from vit_keras.training.checkpoints import read_meta

NOTE = {"kind": "labels", "thresholds": [0.5], "mean": None, "std": None, "shares": None}
META = {"step": 10, "backend": "jax", "best": None, "rows": 2}
META |= {"variables": {"model/0": ["a", [2], "float32"]}}
META |= {"files": {"state.npz": hashlib.sha256(b"").hexdigest()}}
# What each file holds, and what reads it from its folder.
FILES = {
    "environment.json": (
        {"backend": "jax", "keras": "3.15.1", "cpus": 2, "kernels": {"attention": {"flash": True}}},
        lambda folder: Run(folder, Config()).environment,
    ),
    "metrics.json": (
        [{"step": 10, "loss": 2.0, "val_loss": 1.5}, {"step": 20, "loss": 1.0}],
        lambda folder: (best_row(rows := read_rows(folder)), out_of_patience(rows, 3)),
    ),
    "teacher.json": (
        {"teacher": "runs/a", "sha256": {"model.keras": "ab"}},
        lambda folder: read_json(folder / "teacher.json", Record),
    ),
    "features/meta.json": (
        {"weights": "ab", "data": "cd", "train/x.npy": "ef"},
        lambda folder: read_json(folder / "meta.json", dict[str, str]),
    ),
    "step_000000010/meta.json": (META, read_meta),
    "manifest.json": (
        {
            "files": [{"file": "model.onnx", "bytes": 7}],
            "input": {"preprocessing": {"mean": [0.5], "crop_fraction": None}},
            "output": "sigmoid",
            "task": {**NOTE, "temperature": None},
        },
        lambda folder: _manifest_of(folder / "model.onnx"),
    ),
}


FIVE = from_arrays(np.zeros((5, 1, 1, 1), "uint8"), [0, 1, 1, 0, 1])
DIGITS = types.SimpleNamespace(
    name="digits", kind="classes", class_names=("0", "1"), splits={"train": FIVE}
)


def _row(name):
    content, read = FILES[name]

    def make(rng, folder):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=1))
        if name.startswith("step"):
            (folder / name).with_name("state.npz").touch()

    def open_(path):  # what is no refusal may say anything
        read(path.parent)
        return []

    return make, name, open_


def _record_data(rng, folder):
    (folder / "run").mkdir()
    check_unchanged(DIGITS, folder / "run")


RUN_FILES = {name: _row(name) for name in FILES}
RUN_FILES[RECORD] = (_record_data, "run", lambda path: [check_unchanged(DIGITS, path)])
