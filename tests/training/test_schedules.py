"""Compares the schedule with the published rule in NumPy."""

import pytest

from tests.helpers import assert_close, to_numpy
from tests.update_reference import published_rate
from vit_keras.training import WarmupDecay


@pytest.mark.parametrize("decay_type", ["cosine", "linear", "staircase"])
@pytest.mark.parametrize("warmup", [0, 1, 10])
def test_the_schedule_equals_the_published_rule(decay_type, warmup):
    schedule = WarmupDecay(0.3, 50, warmup, decay_type)
    again = WarmupDecay.from_config(schedule.get_config())
    rates = [float(to_numpy(again(step))) for step in range(60)]
    expected = [published_rate(step, 0.3, 50, warmup, decay_type) for step in range(60)]
    assert_close(rates, expected, rtol=1e-6)
