"""A clock that goes back changes nothing in a run: no order and no choice depends on it."""

import os
import time

import pytest

from tests.training.small import assert_same_state, small_run, state, without_rate

pytestmark = pytest.mark.on("torch")

ALL = {"optimizer": {"ema_decay": 0.8, "warmup_steps": 3}, "patience": 3, "total_steps": 12}


def test_a_run_resumes_with_a_clock_set_back(tmp_path, monkeypatch):
    """Twice killed, each time ten years earlier, and the newest files look the oldest."""
    *_, rows = small_run(tmp_path / "straight", **ALL)
    now = time.time()
    for number, last in enumerate((5, 10, 100)):
        years = number * 10 * 365 * 24 * 3600
        monkeypatch.setattr(time, "time", lambda back=years: now - back)

        def stop(images, part, last=last):
            return images if part < last else images * float("nan")

        try:
            *_, resumed = small_run(tmp_path / "back", stop, **ALL)
        except FloatingPointError:
            assert last < 100
        for path in sorted((tmp_path / "back").rglob("*")):
            os.utime(path, (now - years, now - years))
    assert without_rate(resumed) == without_rate(rows)
    assert_same_state(state(tmp_path / "straight", 12), state(tmp_path / "back", 12))
