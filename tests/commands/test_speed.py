"""Functions that take turns, and what is computed of their times."""

import numpy as np
import pytest

from vit_keras.commands import bench as speed

pytestmark = pytest.mark.once


def test_functions_take_turns_after_a_round_that_is_dropped():
    called = []
    turns = speed.take_turns({name: lambda n=name: called.append(n) for name in "ab"}, rounds=3)
    assert called == ["a", "b"] * 4
    assert {name: times.shape for name, times in turns.items()} == {"a": (3, 2), "b": (3, 2)}


def test_ratios_are_medians_over_pairs_of_turns(rng):
    """A machine that is ten times as slow in some rounds changes no ratio."""
    load = np.array([1, 10, 1, 1, 10, 1, 10])[:, np.newaxis]
    noise = rng.uniform(0.95, 1.05, (2, 7, 2))
    seconds = {"fp32": load * noise[0] * [0.03, 0.06], "int8": load * noise[1] * [0.01, 0.03]}
    table = speed.speeds(seconds)
    assert table["fp32"].ratio == table["fp32"].cpu_ratio == 1
    for place, actual in enumerate((table["int8"].ratio, table["int8"].cpu_ratio)):
        pairs = sorted(seconds["fp32"][i, place] / seconds["int8"][i, place] for i in range(7))
        assert actual == pytest.approx(pairs[3])
    clock, cpu = np.sort(seconds["int8"], axis=0)[3]
    assert table["int8"].milliseconds == pytest.approx(1e3 * clock)
    assert table["int8"].cpu_milliseconds == pytest.approx(1e3 * cpu)


def test_the_fastest_is_the_one_of_the_largest_ratio_that_is_allowed():
    table = {
        "fp32": speed.Speed(30.0, 1.0, 1.0, 30.0),
        "int8": speed.Speed(10.0, 3.0, 2.5, 12.0),
        "int4": speed.Speed(9.0, 3.5, 3.0, 10.0),
    }
    assert speed.fastest(table) == "int4"
    assert speed.fastest(table, lambda name: name != "int4") == "int8"
