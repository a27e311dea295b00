"""Which of two implementations is faster on this machine."""

import os
import time
from collections.abc import Callable

GAIN = 1.05  # less than this is noise
# CPU time, which other work on the machine changes little; on Windows it is too coarse.
CLOCK = time.process_time if os.name == "posix" else time.perf_counter


def is_faster(new: Callable, old: Callable, operands: list[tuple], rounds: int) -> bool:
    """Whether `new` takes less time for all `operands` than `old`, called in turns with it."""
    seconds: dict[Callable, list[float]] = {new: [], old: []}
    for turn in range(rounds + 1):
        for function in (new, old):
            start = CLOCK()
            for arguments in operands:
                function(*arguments)
            if turn:  # the first turn allocates
                seconds[function].append(CLOCK() - start)
    return min(seconds[old]) > GAIN * min(seconds[new])
