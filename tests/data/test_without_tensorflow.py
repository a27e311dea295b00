"""The whole journey of a run where TensorFlow cannot be imported."""

import json
import signal
import textwrap

import numpy as np
import pytest
from PIL import Image

from tests.helpers import run_script

pytestmark = pytest.mark.once
STEPS, KILLED_AT, EVERY = 10, 9, 3  # updates; a checkpoint is written every 3
WITHOUT_TENSORFLOW = """
import json, os, signal, sys

from tests.data.hide_tensorflow import WANTED

import keras
from vit_keras.commands import run

seen = []
begin = keras.callbacks.CallbackList.on_train_batch_begin

def die(self, batch, logs=None):
    seen.append(batch)
    if len(seen) == int(os.environ["KILLED_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    begin(self, batch, logs)

for command in json.loads(sys.argv[1]):
    if command[0] == "killed":
        keras.callbacks.CallbackList.on_train_batch_begin, command = die, command[1:]
    print("RUNS", *command, flush=True)
    assert run(command) in (None, 0), command
    assert not WANTED, WANTED
print("ENDED")
"""


def journey(commands, check=True):
    code = textwrap.dedent(WITHOUT_TENSORFLOW)
    return run_script(
        *("-c", code, json.dumps(commands)), backend="torch", check=check, KILLED_AT=str(KILLED_AT)
    )


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Three classes of pictures of several formats, sizes, and depths."""
    root, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for number, name in enumerate(("ant", "bee", "cat")):
        (root / name).mkdir()
        for i in range(12):
            sides = (*rng.integers(20, 50, 2), 3)
            pixels = rng.integers(80 * number, 80 * number + 90, sides, dtype="uint8")
            suffix = ("jpg", "png", "webp", "tif")[i % 4]
            Image.fromarray(pixels).save(root / name / f"{i}.{suffix}")
    return root


def train(pictures, folder):
    sizes = {"variant": "null", "image_size": 16, "patch_size": 8, "hidden_size": 12}
    sizes |= {"num_layers": 1, "num_heads": 2, "mlp_dim": 16, "dropout_rate": 0.1}
    options = {f"model.{name}": value for name, value in sizes.items()}
    options |= {"dataset": f"folder:{pictures}", "workdir": folder, "batch": 8, "batch_eval": 5}
    options |= {"total_steps": STEPS, "eval_every": 5, "checkpoint_every": EVERY}
    options |= {"augment.crop": "inception", "augment.flip": "true", "augment.mixup_alpha": 0.2}
    options |= {"augment.randaugment_layers": 2, "augment.randaugment_magnitude": 10}
    return ["train", *(str(x) for name, value in options.items() for x in (f"--{name}", value))]


def test_a_run_is_checked_killed_resumed_and_used_without_tensorflow(pictures, tmp_path):
    whole, killed, shards = (tmp_path / name for name in ("whole", "killed", "shards"))
    begun = journey(
        [
            ["check", f"folder:{pictures}"],
            ["pack", f"folder:{pictures}", "--out", str(shards), "--format", "tfrecord"],
            train(pictures, whole),
            ["killed", *train(pictures, killed)],
        ],
        check=False,
    )
    assert begun.returncode == -signal.SIGKILL, begun.stdout[-2000:] + begun.stderr[-4000:]
    newest = max(path.name for path in (killed / "checkpoints").glob("step_*"))
    assert 0 < int(newest.removeprefix("step_")) < KILLED_AT  # the last one may have been in work
    picture, table = str(pictures / "bee" / "3.tif"), str(tmp_path / "features.parquet")
    ended = journey(
        [
            train(pictures, killed),
            ["evaluate", str(killed)],
            ["evaluate", str(killed), "--dataset", f"shards:{shards}"],
            ["predict", str(killed), picture, "--out", str(tmp_path / "predicted.csv")],
            ["embed", str(killed), f"folder:{pictures}", "--out", table],
            ["search", table, picture],
        ]
    )
    assert ended.stdout.rstrip().endswith("ENDED")
    states = []
    for folder in (whole, killed):
        with np.load(folder / "checkpoints" / f"step_{STEPS:09d}" / "state.npz") as arrays:
            states.append({name: arrays[name] for name in arrays})
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name], err_msg=name)
