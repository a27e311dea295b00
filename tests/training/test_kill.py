"""A training process that is killed resumes to the same bits."""

import json
import signal

import pytest

from tests.helpers import run_script
from tests.training import kill
from vit_keras.commands import run


@pytest.mark.nightly
def test_forty_kills_at_random_change_nothing():
    """Half of them at a system call of a save."""
    run_script("-m", "tests.training.kill", "--kills", 40)


@pytest.mark.nightly_on("tensorflow", "jax")
@pytest.mark.slow
def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path):
    """Kills it in a checkpoint, then presses Ctrl-C; `tests.training.kill` tries more moments."""
    done = run_script("-m", "tests.training.kill", "--stops", tmp_path)
    (whole, torn, interrupted, ended), differences = json.loads(done.stdout.splitlines()[-1])
    assert [whole[0], torn[0], interrupted[0], ended[0]] == [0, -signal.SIGKILL, 130, 0]
    partial = ".partial-step_000000007"
    assert torn[2] == [partial, f"{partial}.lock", "step_000000004"]
    assert "Traceback" not in interrupted[1]
    assert "the same command goes on from there" in interrupted[1].splitlines()[-1]
    assert differences == []
    step = tmp_path / "straight" / "checkpoints" / f"step_{kill.STEPS:09d}"
    (converted := tmp_path / "converted").mkdir()  # with the average of the weights
    run(["convert", str(step), str(converted / "model.keras")])
    assert kill.model_differences(tmp_path / "straight", converted) == []
