"""The loop counts updates, resumes, evaluates the average, and stops early."""

import contextlib
import errno
import json
import os
import signal

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, to_numpy
from tests.training import small
from vit_keras.data.batches import Batches
from vit_keras.runs import NonFinite, best_row, open_run
from vit_keras.training import callbacks, checkpoints
from vit_keras.training.loop import train

ALL = {"optimizer": {"ema_decay": 0.8, "accumulation_steps": 2, "weight_decay": 0.1}}


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run with average, accumulation, weight decay and dropout that was never stopped."""
    folder = tmp_path_factory.mktemp("straight")
    return folder, *small.small_run(folder, **ALL)


@contextlib.contextmanager
def signaled(number, batch, method):
    """A run that is trained inside gets a signal before a batch, and ends by itself."""
    seen = []

    def call(self, at, logs=None):
        getattr(super(Raising, self), method)(at, logs)
        seen.append(at)
        if len(seen) == batch:
            signal.raise_signal(number)

    Raising = type("Raising", (callbacks.RunCallbacks,), {method: call})
    handlers = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(callbacks, "RunCallbacks", Raising)
            yield
        assert signal.getsignal(signal.SIGTERM) is handlers[signal.SIGTERM]
    finally:
        signal.signal(signal.SIGINT, handlers[signal.SIGINT])


TRAINING, EVALUATION = "on_train_batch_begin", "on_test_batch_begin"
STOPS = [  # signal, batch of the process, exit code, what is said
    (signal.SIGTERM, 3, TRAINING, 143, "SIGTERM after update 5"),  # each update has two parts
    (signal.SIGINT, 2, EVALUATION, 130, "Ctrl-C after update 8"),
    (signal.SIGINT, 2, EVALUATION, 130, "Ctrl-C after update 12"),
]


def test_a_stopped_run_ends_as_if_it_had_not_been(tmp_path, straight, capsys):
    """It stops by an error after a checkpoint, in an epoch, and in two evaluations."""
    folder, model, _, rows = straight
    starts = []

    def noting(batches):
        return lambda start: starts.append(start) or batches(start)

    with small.killed_after_a_save():
        small.small_run(tmp_path, **ALL)
    assert checkpoints.newest(tmp_path / "checkpoints").name == "step_000000003"
    for number, batch, method, code, said in STOPS:
        with signaled(number, batch, method), pytest.raises(SystemExit) as stopped:
            small.small_run(tmp_path, wrap=noting, **ALL)
        assert stopped.value.code == code
        assert f"stopped by {said} of 12, checkpoint" in capsys.readouterr().err
        step = int(said.split()[-1])
        assert checkpoints.newest(tmp_path / "checkpoints").name == f"step_{step:09d}"
    again, _, rows_again = small.small_run(tmp_path, wrap=noting, **ALL)
    assert starts == [6, 8, 10, 16]  # parts: nothing is trained on twice
    assert small.assert_same_run(folder, tmp_path, 12) == small.without_rate(rows)
    assert json.loads((tmp_path / "metrics.json").read_text()) == rows_again
    for one, other in zip(model.get_weights(), again.get_weights()):
        np.testing.assert_array_equal(one, other)


@pytest.mark.on("torch")
def test_ctrl_c_before_the_first_update_ends_at_once(tmp_path):
    with signaled(signal.SIGINT, 1, TRAINING), pytest.raises(KeyboardInterrupt):
        small.small_run(tmp_path, **ALL)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.on("torch")
def test_a_disk_that_fills_while_training_goes_on_stops_the_run(tmp_path, straight):
    """The run is stopped at the next update or save, and later goes on to the same bits."""
    savez, calls = np.savez, []

    def full_at_the_third(file, **arrays):
        calls.append(file.name)
        if len(calls) == 3:
            file.write(b"begun")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        savez(file, **arrays)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError) as stopped:
        patch.setattr(np, "savez", full_at_the_third)
        small.small_run(tmp_path, **ALL)
    assert stopped.value.errno == errno.ENOSPC and len(calls) == 3
    assert stopped.value.filename.endswith("step_000000006")
    left = [path.name for path in (tmp_path / "checkpoints").iterdir()]
    assert sorted(left) == ["step_000000003", "step_000000004"]
    small.small_run(tmp_path, **ALL)
    small.assert_same_run(straight[0], tmp_path, 12)


def test_accumulated_parts_are_one_update(tmp_path, capsys):
    """Schedule, evaluations, checkpoints and the average count updates, not their parts."""
    sgd = {"name": "sgd", "ema_decay": 0.5, "warmup_steps": 4, "grad_norm_clip": None}
    (one, _, rows), (other, _, rows_in_parts) = (
        small.small_run(
            tmp_path / str(parts),
            optimizer={**sgd, "accumulation_steps": parts},
            dropout_rate=0.0,  # draws differ between the parts
        )
        for parts in (1, 2)
    )
    assert int(to_numpy(other.optimizer.iterations)) == 12
    assert [row["step"] for row in rows_in_parts] == [4, 8, 12]
    assert rows_in_parts[0]["learning_rate"] == pytest.approx(small.RATE)  # the warmup is over
    for row, in_parts in zip(small.without_rate(rows), small.without_rate(rows_in_parts)):
        assert row == pytest.approx(in_parts, rel=1e-5)
    for weight, in_parts in zip(one.get_weights(), other.get_weights()):
        assert_close(weight, in_parts)
    error = capsys.readouterr().err  # a pipe gets one line for each evaluation
    assert "\r" not in error and error.count("update 4 of 12: accuracy=") == 2


def test_evaluations_do_not_change_training(tmp_path, straight):
    small.small_run(tmp_path, **ALL, eval_every=12)
    seldom, often = small.state(tmp_path, 12), small.state(straight[0], 12)
    names = [name for name in seldom if not name.startswith("metrics")]
    small.assert_same_state(*({name: each[name] for name in names} for each in (seldom, often)))


def test_the_average_is_evaluated_and_kept(straight):
    folder, model, _, rows = straight
    stored = small.by_path(folder, 12)
    raw = [stored[f"head/{name}"] for name in ("kernel", "bias")]
    average = [
        next(a for path, a in stored.items() if path.endswith(f"head_{name}_average"))
        for name in ("kernel", "bias")
    ]
    assert np.abs(raw[0] - average[0]).max() > 1e-4
    for weight, expected in zip(model.get_layer("head").weights, average):
        np.testing.assert_array_equal(to_numpy(weight), expected)
    images, labels = small.examples(small.HELD_OUT, 1000)
    logits = images.reshape(small.HELD_OUT, -1).astype("float64") @ average[0] + average[1]
    loss = np.log(np.exp(logits).sum(1)) - (logits * labels).sum(1)
    assert rows[-1]["val_loss"] == pytest.approx(loss.mean(), rel=1e-5)
    right = logits.argmax(1) == labels.argmax(1)
    assert rows[-1]["val_accuracy"] == pytest.approx(right.mean())
    norm = np.sqrt(sum((w.astype("float64") ** 2).sum() for w in raw))
    assert_close(rows[-1]["weight_norm"], norm)


def test_callbacks_of_an_evaluation_see_the_average(tmp_path):
    """A few-shot evaluation judges the weights that the run would save."""
    kernels = []
    keep = lambda *_, **__: kernels.append(to_numpy(model.get_layer("head").kernel))
    note = keras.callbacks.LambdaCallback(on_test_end=keep)
    config = small.small_config(tmp_path, total_steps=4, optimizer={"ema_decay": 0.8})
    model, run = small.small_model(config), open_run(config)
    train(model, run, small.small_batches(config), small.held_out(), more_callbacks=[note])
    (kernel,) = kernels
    np.testing.assert_array_equal(kernel, to_numpy(model.get_layer("head").kernel))


def test_several_updates_in_one_execution(tmp_path, straight):
    several = {**ALL, "checkpoint_every": 6, "steps_per_execution": 2}
    if keras.backend.backend() == "torch":
        with pytest.raises(ValueError, match="`steps_per_execution` must be 1 with the PyTorch"):
            small.small_run(tmp_path, **several)
        return
    _, _, rows = small.small_run(tmp_path, **several)
    assert checkpoints.newest(tmp_path / "checkpoints").name == "step_000000012"
    for one, other in zip(small.without_rate(rows), small.without_rate(straight[3])):
        assert one == pytest.approx(other, rel=1e-5)


@pytest.mark.on("torch")
def test_patience(tmp_path):
    """At a tiny learning rate nothing improves: the first evaluation stays the best."""
    fields = {"patience": 2, "total_steps": 40, "optimizer": {"learning_rate": 1e-12}}
    _, run, rows = small.small_run(tmp_path, **fields)
    assert [row["step"] for row in rows] == [4, 8, 12]
    assert small.small_run(tmp_path, **fields)[2] == rows
    newest = checkpoints.newest(run.checkpoints)
    assert newest.name == "step_000000012"
    meta = json.loads((newest / "meta.json").read_text())
    assert meta["best"] == {"step": 4, "val_accuracy": rows[0]["val_accuracy"]}
    assert (run.checkpoints / "step_000000004").is_dir()  # the best is kept


def test_of_equally_accurate_evaluations_the_one_with_the_lowest_loss_is_the_best():
    """Few held-out images are often all right, long before the probabilities are."""
    figures = [(0.8, 0.1), (0.9, 0.5), (0.9, 0.3), (0.9, 0.3)]
    rows = [{"step": i, "val_accuracy": a, "val_loss": b} for i, (a, b) in enumerate(figures)]
    assert best_row(rows)["step"] == 2


def test_a_run_with_patience_ends_with_its_best_weights(tmp_path):
    turning = {"change": lambda images, part: images if part < 4 else -images}
    fields = {**turning, "patience": 5, "optimizer": {"learning_rate": 0.1}}
    model, run, rows = small.small_run(tmp_path, **fields)
    assert best_row(rows)["step"] == 4
    kernel = small.by_path(tmp_path, 4)["head/kernel"]
    np.testing.assert_array_equal(to_numpy(model.get_layer("head").kernel), kernel)
    (run.checkpoints / "step_000000004" / "state.npz").write_bytes(b"torn")
    with pytest.raises(ValueError, match="step_000000004' cannot be read .*Delete"):
        small.small_run(tmp_path, **fields)


def spoiling(step, *, times):
    """Puts a NaN into the images of update `step`, the first `times` times it is trained."""
    left = [times]

    def wrap(batches):
        def spoiled(start):
            whole = batches(start)

            def make(number, each):
                images, labels = whole[number]
                hit = start + number == step - 1 and left[0] > 0
                left[0] -= hit
                return np.where(hit, np.float32(np.nan), images), labels

            return Batches(make, len(whole), threads=0)

        return spoiled

    return wrap


def steps_of(folder):
    return sorted(int(path.name[5:]) for path in (folder / "checkpoints").iterdir())


@pytest.mark.on("torch")
def test_a_loss_that_is_not_finite_stops_the_run_at_its_update(tmp_path):
    message = r"the loss of update 8 is nan\. Last good .*step_000000006\..*smaller"
    with pytest.raises(NonFinite, match=f"training stopped: {message}"):
        small.small_run(tmp_path, wrap=spoiling(8, times=99))
    assert steps_of(tmp_path)[-1] == 6
