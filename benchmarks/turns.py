"""CPU time of functions that are called in turns, so that what slows the machine slows all."""

import time
from collections.abc import Callable

import numpy as np


def cpu_ms(runs: dict[object, Callable], rounds: int) -> dict[object, np.ndarray]:
    """Milliseconds of each of `runs` in every round, by its name; all are called once before."""
    times = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.process_time()
            run()
            times[name].append(1e3 * (time.process_time() - start))
    return {name: np.array(found) for name, found in times.items()}


def table(runs: dict[str, Callable], rounds: int) -> None:
    """Prints their medians, and the quartiles of how many times as fast as the first they are."""
    times = cpu_ms(runs, rounds)
    first = next(iter(times.values()))
    for name, found in times.items():
        low, middle, high = np.percentile(first / found, (25, 50, 75))
        gained = f"x{middle:.3f} ({low:.3f} to {high:.3f})"
        print(f"{name:<40} {np.median(found):8.2f} ms CPU  {gained}", flush=True)
