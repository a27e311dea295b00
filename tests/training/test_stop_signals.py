"""Ctrl-C and SIGTERM stop a run, which then goes on to the same bits."""

import signal

import pytest

from tests.training.small import HELD_OUT, assert_same_state, small_run, state, without_rate
from vit_keras.training import callbacks, checkpoints

ALL = {"optimizer": {"ema_decay": 0.8, "accumulation_steps": 2, "weight_decay": 0.1}}


@pytest.fixture(autouse=True)
def ctrl_c():
    """Ctrl-C interrupts this process, even if the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    return folder, small_run(folder, **ALL)[2]


def raising(number, batch, method="on_test_batch_begin"):
    """The callback `RestoreFitState`, which sends a signal before a batch."""

    seen = []

    def call(self, at, logs=None):
        getattr(super(Raising, self), method)(at, logs)
        seen.append(at)
        if len(seen) == batch:
            signal.raise_signal(number)

    Raising = type("Raising", (callbacks.RestoreFitState,), {method: call})
    return Raising


@pytest.mark.parametrize(
    "evaluation", [2, pytest.param(3, marks=pytest.mark.nightly_on("jax", "tensorflow"))]
)
def test_a_run_that_stops_in_an_evaluation_makes_it_again(
    tmp_path, monkeypatch, straight, capsys, evaluation
):
    """The last evaluation of the run, or an earlier one."""
    folder, rows = straight
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as stopped:
        at = (evaluation - 1) * HELD_OUT // 8 + 2
        patch.setattr(callbacks, "RestoreFitState", raising(signal.SIGINT, at))
        small_run(tmp_path, **ALL)
    assert stopped.value.code == 130
    update = 4 * evaluation
    assert f"stopped by Ctrl-C after update {update} of 12, check" in capsys.readouterr().err
    assert checkpoints.newest(tmp_path / "checkpoints").name == f"step_{update:09d}"
    _, _, rows_again = small_run(tmp_path, **ALL)
    assert_same_state(state(folder, 12), state(tmp_path, 12))
    assert without_rate(rows) == without_rate(rows_again)


def test_ctrl_c_before_the_first_update_ends_at_once(tmp_path, monkeypatch):
    first = raising(signal.SIGINT, 1, "on_train_batch_begin")
    monkeypatch.setattr(callbacks, "RestoreFitState", first)
    with pytest.raises(KeyboardInterrupt):
        small_run(tmp_path, **ALL)
    assert not (tmp_path / "checkpoints").exists()
