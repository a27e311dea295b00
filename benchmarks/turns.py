"""Measurements in turns: what slows the machine for a while then slows every candidate alike."""

import time
from collections.abc import Callable, Mapping

import numpy as np


def take_turns(
    measurements: Mapping[object, Callable[[], float]], rounds: int, warm_up: bool = True
) -> dict[object, np.ndarray]:
    """Calls every function once a round, and returns what each of them measured.

    Args:
        measurements: functions by name; each measures something once and returns the number.
        rounds: how many times every function is called.
        warm_up: whether one more round runs first, whose numbers are dropped.

    Returns:
        `{name: array of shape (rounds,)}`. Entry `i` of every array is from the same round.
    """
    values = {name: [] for name in measurements}
    for turn in range(-1 if warm_up else 0, rounds):
        for name, measure in measurements.items():
            value = measure()
            if turn >= 0:
                values[name].append(value)
    return {name: np.array(numbers) for name, numbers in values.items()}


def cpu_ms(function: Callable[[], object]) -> Callable[[], float]:
    """Makes a function for `take_turns` that calls `function` and returns its CPU time in ms."""

    def measure():
        start = time.process_time()
        function()
        return 1e3 * (time.process_time() - start)

    return measure


def quartiles(ratios: np.ndarray) -> str:
    """The median of `ratios`, and in brackets their quartiles."""
    low, middle, high = np.percentile(ratios, (25, 50, 75))
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def print_cpu_times(functions: Mapping[str, Callable[[], object]], rounds: int) -> None:
    """Prints each function's median CPU time, and how many times as fast as the first it is."""
    times = take_turns({name: cpu_ms(run) for name, run in functions.items()}, rounds)
    first = next(iter(times.values()))
    for name, ms in times.items():
        print(f"{name:<40} {np.median(ms):8.2f} ms CPU  x{quartiles(first / ms)}", flush=True)
