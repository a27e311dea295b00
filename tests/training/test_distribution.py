"""Several processes and devices train like one."""

import os
import signal

import keras
import numpy as np
import pytest

import vit_keras
from tests.helpers import ROOT, assert_close, randomize, run_script
from tests.training.distribution_worker import ON
from tests.training.processes import (
    RUN,
    WORKER,
    assert_identical,
    assert_same_training,
    rows_of,
    start_processes,
)
from tests.training.shards_of_state import assert_moved, assert_split
from vit_keras import data
from vit_keras.commands import run
from vit_keras.config import read_config as read
from vit_keras.models import Preprocessing, VisionTransformer
from vit_keras.training.loop import compile_model

BACKEND = keras.backend.backend()
DIGITS = read(str(ROOT / "configs" / "digits.yaml"))

RUNS = ("straight", "stopped")
SAID = "they go on from the newest checkpoint", "another task died", "JAX distributed service"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The folders that two processes leave: `straight`, and `stopped`, which was started again."""
    folder = tmp_path_factory.mktemp("pair")
    first = start_processes("several_runs", folder, "multi_worker")
    second = start_processes("one_run", folder, "multi_worker")
    assert second[0] == [0, 0], second[1]
    return folder, first, second


@pytest.mark.nightly_on("tensorflow")
@pytest.mark.slow
def test_two_processes_train_as_one(pair, alone):
    folder, _, _ = pair
    assert_same_training(folder / "straight", alone)
    with np.load(folder / "process_0.npz") as a, np.load(folder / "process_1.npz") as b:
        assert len(a.files) > 20
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.nightly_on("tensorflow")
@pytest.mark.slow
def test_processes_stop_together_when_one_is_stopped_or_dies(pair):
    folder, (codes, outputs), _ = pair
    for output in outputs:  # both stopped after the same update when process 1 had SIGTERM
        assert "stopped by SIGTERM after update 9 of 20" in output
    assert (folder / "stopped" / "checkpoints" / "step_000000009").is_dir()
    assert codes[1] == -signal.SIGKILL and codes[0] not in (0, None)
    assert any(words in outputs[0] for words in SAID)


@pytest.mark.nightly_on("tensorflow")
@pytest.mark.slow
def test_processes_that_are_started_again_end_like_undisturbed_ones(pair):
    folder, _, (_, outputs) = pair
    assert_identical(folder / "stopped", folder / "straight")
    model = vit_keras.open(folder / "stopped" / "model.keras")
    test = data.load("digits", 1).split("test")
    rows = [rows_of(folder / name) for name in RUNS]
    assert rows[0] == rows[1]
    held_out = {"image_size": (16, 16), "preprocessing": model.preprocessing, "batch": 360}
    ((images, labels),) = data.eval_batches(test, **held_out)
    right = model.predict_on_batch(np.asarray(images)).argmax(axis=1) == np.asarray(labels)
    assert rows[1][-1]["val_accuracy"] == pytest.approx(right.mean(), abs=1e-6)
    assert f"accuracy {100 * right.mean():.2f}%" in outputs[0]
    assert "accuracy" not in outputs[1]


@pytest.mark.slow
@pytest.mark.nightly  # `test_processes_stop_together_when_one_is_stopped_or_dies` loses the other
def test_a_run_whose_first_process_is_lost_ends_and_can_be_resumed(pair, tmp_path):
    codes, outputs = start_processes("lose_chief", tmp_path, "multi_worker")
    assert codes[0] == -signal.SIGKILL and codes[1] not in (0, None)
    assert any(words in outputs[1] for words in SAID), outputs[1]
    codes, outputs = start_processes("one_run", tmp_path, "multi_worker")
    assert codes == [0, 0], outputs
    assert_identical(tmp_path / "stopped", pair[0] / "straight")
    assert rows_of(tmp_path / "stopped") == rows_of(pair[0] / "straight")


@pytest.mark.slow
@pytest.mark.on("tensorflow", "jax")
def test_devices_of_one_process_train_as_one(tmp_path, alone):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    devices = {"XLA_FLAGS": flags} if BACKEND == "jax" else {}
    run_script(WORKER, "several_devices", tmp_path, *RUN, **devices)
    kinds = ON[BACKEND]
    for kind in kinds:
        assert_same_training(tmp_path / kind, alone)
    assert_identical(tmp_path / "resumed", tmp_path / kinds[-1])
    assert rows_of(tmp_path / "resumed") == rows_of(tmp_path / kinds[-1])
    if BACKEND == "jax":
        assert_split(tmp_path)
        assert_moved(tmp_path)


@pytest.mark.slow
@pytest.mark.nightly  # `test_devices_of_one_process_train_as_one` takes a checkpoint elsewhere
@pytest.mark.on("jax")
def test_a_run_in_shards_continues_on_fewer_devices(tmp_path):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    arguments = [*RUN, "--batch_eval", "96"]  # a multiple of the devices
    run_script(WORKER, "fewer_devices", tmp_path, *arguments, XLA_FLAGS=flags)
    run(["train", *arguments, "--workdir", str(tmp_path / "alone")])
    for name in ("fully_sharded", "four", "two", "one"):
        assert_same_training(tmp_path / name, tmp_path / "alone")
    assert_moved(tmp_path)


@pytest.mark.slow
@pytest.mark.nightly  # `test_devices_of_one_process_train_as_one` shares a model among devices
@pytest.mark.on("jax")
def test_two_processes_share_one_copy_of_the_model(tmp_path, alone):
    codes, outputs = start_processes("one_run", tmp_path, "model_parallel")
    assert codes == [0, 0], outputs
    assert_same_training(tmp_path / "stopped", alone)
    assert (tmp_path / "stopped" / "model.keras").is_file()


def test_padding_changes_no_evaluation(rng):
    """Compares four batches of 100 for 360 images with the mean over images of -Σ y log p."""
    model = randomize(VisionTransformer(8, 4, 8, 1, 2, 8, 10, channels=1), rng)
    compile_model(model, DIGITS)
    test = data.load("digits", 1).split("test")
    options = {"image_size": (8, 8), "preprocessing": Preprocessing()}
    padded = data.eval_batches(test, **options, batch=100, num_classes=10, pad=True)
    assert [len(weights) for _, _, weights in padded] == [100] * 4
    found = model.evaluate(padded, return_dict=True, verbose=0)
    ((images, labels),) = data.eval_batches(test, **options, batch=360)
    logits = model.predict_on_batch(np.asarray(images)).astype("float64")
    smooth = 0.9 * np.eye(10)[labels] + 0.1 / 10
    losses = (smooth * (np.log(np.exp(logits).sum(axis=1, keepdims=True)) - logits)).sum(axis=1)
    assert DIGITS.label_smoothing == 0.1
    assert_close(found["loss"], losses.mean())
    right = logits.argmax(axis=1) == np.asarray(labels)
    assert found["accuracy"] == pytest.approx(right.mean(), rel=1e-6)
