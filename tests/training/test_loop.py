"""The loop counts updates, resumes, evaluates the average and stops early."""

import json
import signal

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, to_numpy
from tests.training.small import (
    HELD_OUT,
    RATE,
    assert_same_state,
    by_path,
    examples,
    killed_after_a_save,
    small_run,
    state,
    without_rate,
)
from vit_keras.training import callbacks, checkpoints
from vit_keras.training.loop import segments
from vit_keras.training.records import best_row

ALL = {"optimizer": {"ema_decay": 0.8, "accumulation_steps": 2, "weight_decay": 0.1}}


@pytest.mark.parametrize(
    ("start", "total", "every", "expected"),
    [
        (0, 9, 3, [(0, 3, 3)]),
        (0, 8, 3, [(0, 2, 3), (2, 3, 2)]),
        (4, 11, 3, [(1, 2, 2), (2, 3, 3), (3, 4, 2)]),
        (0, 2, 5, [(0, 1, 2)]),
        (6, 6, 3, []),
    ],
)
def test_segments_cover_the_remaining_steps(start, total, every, expected):
    calls = segments(start, total, every)
    assert calls == expected
    assert sum((s.last - s.first) * s.steps for s in calls) == total - start


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run with average, accumulation, weight decay and dropout that was never stopped."""
    folder = tmp_path_factory.mktemp("straight")
    return folder, *small_run(folder, **ALL)


def test_a_stopped_run_ends_as_if_it_had_not_been(tmp_path, monkeypatch, straight, capsys):
    """It stops twice within an epoch: by an error after a checkpoint, then by SIGTERM."""
    folder, model, _, rows = straight
    starts = []

    def noting(batches):
        return lambda start: starts.append(start) or batches(start)

    with killed_after_a_save():
        small_run(tmp_path, **ALL)
    assert checkpoints.newest(tmp_path / "checkpoints").name == "step_000000003"

    class Terminating(callbacks.RestoreFitState):
        batches = 0

        def on_train_batch_begin(self, batch, logs=None):
            super().on_train_batch_begin(batch, logs)
            self.batches += 1
            if self.batches == 3:  # updates 4 and 5 have two parts each
                signal.raise_signal(signal.SIGTERM)

    handler = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as stopped:
        patch.setattr(callbacks, "RestoreFitState", Terminating)
        small_run(tmp_path, **ALL)
    assert stopped.value.code == 143 and signal.getsignal(signal.SIGTERM) is handler
    assert "stopped by SIGTERM after update 5 of 12, checkpoint" in capsys.readouterr().err
    assert checkpoints.newest(tmp_path / "checkpoints").name == "step_000000005"

    again, _, rows_again = small_run(tmp_path, wrap=noting, **ALL)
    assert starts == [10, 16]  # parts: nothing is trained on twice
    assert_same_state(state(folder, 12), state(tmp_path, 12))
    assert without_rate(rows) == without_rate(rows_again)
    assert json.loads((tmp_path / "metrics.json").read_text()) == rows_again
    for one, other in zip(model.get_weights(), again.get_weights()):
        np.testing.assert_array_equal(one, other)


def test_accumulated_parts_are_one_update(tmp_path):
    """Schedule, evaluations, checkpoints and the average count updates, not their parts."""
    sgd = {"name": "sgd", "ema_decay": 0.5, "warmup_steps": 4, "grad_norm_clip": None}
    (one, _, rows), (other, _, rows_in_parts) = (
        small_run(
            tmp_path / str(parts),
            optimizer={**sgd, "accumulation_steps": parts},
            dropout_rate=0.0,  # draws differ between the parts
        )
        for parts in (1, 2)
    )
    assert int(to_numpy(other.optimizer.iterations)) == 12
    assert [row["step"] for row in rows_in_parts] == [4, 8, 12]
    assert rows_in_parts[0]["learning_rate"] == pytest.approx(RATE)  # the warmup is over
    for row, in_parts in zip(without_rate(rows), without_rate(rows_in_parts)):
        assert row == pytest.approx(in_parts, rel=1e-5)
    for weight, in_parts in zip(one.get_weights(), other.get_weights()):
        assert_close(weight, in_parts)


def test_evaluations_do_not_change_training(tmp_path, straight):
    folder = straight[0]
    small_run(tmp_path, **ALL, eval_every=12)
    seldom, often = state(tmp_path, 12), state(folder, 12)
    for name in seldom:
        if not name.startswith("metrics"):
            np.testing.assert_array_equal(seldom[name], often[name], err_msg=name)


def test_the_average_is_evaluated_and_kept(straight):
    folder, model, _, rows = straight
    stored = by_path(folder, 12)
    raw = [stored[f"head/{name}"] for name in ("kernel", "bias")]
    average = [
        next(a for path, a in stored.items() if path.endswith(f"head_{name}_average"))
        for name in ("kernel", "bias")
    ]
    assert np.abs(raw[0] - average[0]).max() > 1e-4
    for weight, expected in zip(model.get_layer("head").weights, average):
        np.testing.assert_array_equal(to_numpy(weight), expected)
    images, labels = examples(HELD_OUT, 1000)
    logits = images.reshape(HELD_OUT, -1).astype("float64") @ average[0] + average[1]
    loss = np.log(np.exp(logits).sum(1)) - (logits * labels).sum(1)
    assert rows[-1]["val_loss"] == pytest.approx(loss.mean(), rel=1e-5)
    right = logits.argmax(1) == labels.argmax(1)
    assert rows[-1]["val_accuracy"] == pytest.approx(right.mean())
    norm = np.sqrt(sum((w.astype("float64") ** 2).sum() for w in raw))
    assert_close(rows[-1]["weight_norm"], norm)


def test_several_updates_in_one_execution(tmp_path, straight):
    if keras.backend.backend() == "torch":
        with pytest.raises(ValueError, match="`steps_per_execution` must be 1 with the PyTorch"):
            small_run(tmp_path, **ALL, checkpoint_every=6, steps_per_execution=2)
        return
    _, _, rows = small_run(tmp_path, **ALL, checkpoint_every=6, steps_per_execution=2)
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert kept[-1] == "step_000000012"
    for one, other in zip(without_rate(rows), without_rate(straight[3])):
        assert one == pytest.approx(other, rel=1e-5)


def test_patience(tmp_path):
    """At a tiny learning rate nothing improves: the first evaluation stays the best."""
    fields = {"patience": 2, "total_steps": 40, "optimizer": {"learning_rate": 1e-12}}
    _, run, rows = small_run(tmp_path, **fields)
    assert [row["step"] for row in rows] == [4, 8, 12]
    again = small_run(tmp_path, **fields)[2]
    assert again == rows
    newest = checkpoints.newest(run.checkpoints)
    assert newest.name == "step_000000012"
    meta = json.loads((newest / "meta.json").read_text())
    assert meta["best"] == {"step": 4, "val_accuracy": rows[0]["val_accuracy"]}
    assert (run.checkpoints / "step_000000004").is_dir()  # the best is kept


def test_a_run_with_patience_ends_with_its_best_weights(tmp_path):
    turning = {"change": lambda images, part: images if part < 4 else -images}
    fields = {**turning, "patience": 5, "optimizer": {"learning_rate": 0.1}}
    model, run, rows = small_run(tmp_path, **fields)
    assert best_row(rows)["step"] == 4
    kernel = by_path(tmp_path, 4)["head/kernel"]
    np.testing.assert_array_equal(to_numpy(model.get_layer("head").kernel), kernel)
    (run.checkpoints / "step_000000004" / "state.npz").write_bytes(b"torn")
    with pytest.raises(ValueError, match="The best checkpoint .* is damaged .*Delete"):
        small_run(tmp_path, **fields)
