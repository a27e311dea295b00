"""A training process that is killed resumes to the same bits."""

import signal

import pytest

from tests.training import kill


@pytest.mark.slow
def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path):
    """Kills it in an update and in a checkpoint; `tests.training.kill` tries many more moments."""
    straight, other = tmp_path / "straight", tmp_path / "killed"
    assert kill.train(straight).returncode == 0
    torn = kill.train(other, "flush", 8)  # of the second checkpoint, after its first file
    assert torn.returncode == -signal.SIGKILL
    assert [path.name[:6] for path in sorted((other / "checkpoints").iterdir())] == [
        ".parti",
        "step_0",
    ]
    stopped = kill.train(other, "sigterm", 16)
    assert stopped.returncode == 143
    assert "the same command goes on from there" in stopped.stderr
    assert kill.train(other, "update", 21).returncode == -signal.SIGKILL
    assert kill.train(other).returncode == 0
    assert kill.differences(straight, other) == []
