"""A training process that is killed resumes to the same bits."""

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
    straight, other = tmp_path / "straight", tmp_path / "killed"
    assert kill.train(straight).returncode == 0
    torn = kill.train(other, "flush", 8)  # of the second checkpoint, after its first file
    assert torn.returncode == -signal.SIGKILL
    assert sorted(path.name for path in (other / "checkpoints").iterdir()) == [
        ".partial-step_000000007",
        ".partial-step_000000007.lock",
        "step_000000004",
    ]
    stopped = kill.train(other, "sigint", 16)
    assert stopped.returncode == 130 and "Traceback" not in stopped.stderr
    assert "the same command goes on from there" in stopped.stderr.splitlines()[-1]
    assert kill.train(other).returncode == 0
    assert kill.differences(straight, other) == []
    step = straight / "checkpoints" / f"step_{kill.STEPS:09d}"
    (converted := tmp_path / "converted").mkdir()  # with the average of the weights
    run(["convert", str(step), str(converted / "model.keras")])
    assert kill.model_differences(straight, converted) == []
