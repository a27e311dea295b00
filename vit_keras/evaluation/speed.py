"""How fast several functions answer, beside one another."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

# By name: the seconds of each call, by the clock and of CPU time, `(rounds, 2)`.
Turns = Mapping[str, np.ndarray]


class Speed(NamedTuple):
    """The speed of one of several functions that took turns.

    Attributes:
        milliseconds: The median time of a call, by the clock.
        ratio: How many times as fast as the first function it is, by the clock: the median over
            pairs of calls in the same round.
        cpu_ratio: The same by the CPU time of all threads, which other programs on the machine
            change less.
        cpu_milliseconds: The median CPU time of a call.
    """

    milliseconds: float
    ratio: float
    cpu_ratio: float
    cpu_milliseconds: float


def take_turns(calls: Mapping[str, Callable[[], object]], rounds: int) -> Turns:
    """Calls each function once a round, so that what else the machine does slows all alike.

    One round goes before, in which programs are compiled and caches filled. Its times are dropped.

    Args:
        calls: Functions without arguments, by name.
        rounds: How often each is called.

    Returns:
        By name, the seconds of each call by the clock and of CPU time, `(rounds, 2)`.
    """
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            clock, cpu = time.perf_counter(), time.process_time()
            call()
            seconds[name].append((time.perf_counter() - clock, time.process_time() - cpu))
    return {name: np.array(rows[1:]) for name, rows in seconds.items()}


def speeds(turns: Turns) -> dict[str, Speed]:
    """Compares every function with the first one, round by round.

    Example:
        >>> first = np.array([[0.004, 0.002], [0.006, 0.003]])
        >>> speeds({"fp32": first, "int8": first / 2})["int8"]
        Speed(milliseconds=2.5, ratio=2.0, cpu_ratio=2.0, cpu_milliseconds=1.25)
    """
    first = next(iter(turns.values()))
    table = {}
    for name, seconds in turns.items():
        ratio, cpu_ratio = map(float, np.median(first / np.maximum(seconds, 1e-9), axis=0))
        clock, cpu = map(float, 1e3 * np.median(seconds, axis=0))
        table[name] = Speed(clock, ratio, cpu_ratio, cpu)
    return table


def fastest(table: Mapping[str, Speed], allowed=lambda name: True) -> str:
    """The name with the largest ratio by the clock among those that `allowed` accepts."""
    return max(filter(allowed, table), key=lambda name: table[name].ratio)
