"""Every save survives every fault: the old content stays whole, or the new one is whole."""

import re

import pytest

from tests.faults import sweep

pytestmark = pytest.mark.once

SAMPLE = 23  # every 23rd call of a save, and another one for each fault


def run(*arguments):
    return sweep.run_below(*arguments, capture_output=True, text=True)


def counts(output):
    """How many saves ended in which way."""
    found: dict[str, int] = {}
    for end, count in re.findall(r"'([^']+)': (\d+)[,}]", output):
        found[end] = found.get(end, 0) + int(count)
    return found


def test_a_sample_of_faults_loses_nothing():
    done = run("--every", str(SAMPLE))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    seen = counts(done.stdout)
    assert seen["error, old"] > 20 and seen["killed, old"] > 5 and seen["killed, new"] > 0


def test_the_sweep_sees_a_save_that_writes_in_place():
    done = run("--saves", "in place", "--faults", "ENOSPC stays", "kill, torn write")
    assert done.returncode == 1
    assert "in place, ENOSPC stays at call 2 (write): torn" in done.stdout
    assert "in place, kill, torn write at call 2 (write): torn" in done.stdout


@pytest.mark.nightly
def test_every_fault_loses_nothing():
    done = run()
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
