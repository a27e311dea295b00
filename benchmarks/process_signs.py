"""What a process holds at a moment: its memory, open files and threads, from `/proc`."""

import dataclasses
import os
import pathlib
import statistics
import threading
import time
from collections.abc import Callable

BAR = 0.02  # the growth of memory after the warm-up that counts as flat


@dataclasses.dataclass(frozen=True)
class Signs:
    """One look at a process.

    Attributes:
        age: Seconds since the first look
        resident: Resident memory in MiB
        anonymous: The part of it in MiB that is no file's, such as heaps; what leaks, leaks here
        files: The number of open files
        threads: The number of threads
        done: How much of its work the process had done, counted by who watched it
    """

    age: float
    resident: float
    anonymous: float
    files: int
    threads: int
    done: int = 0


def look(process: int | str = "self", since: float | None = None) -> Signs:
    """Looks at a process; raises OSError if it has ended."""
    home = pathlib.Path("/proc") / str(process)
    sizes = {}
    for line in (home / "smaps_rollup").read_text().splitlines()[1:]:
        name, kibibytes = line.split()[:2]
        sizes[name] = int(kibibytes) / 2**10
    count = lambda folder: len(os.listdir(home / folder))
    age = 0.0 if since is None else time.monotonic() - since
    return Signs(age, sizes["Rss:"], sizes["Anonymous:"], count("fd"), count("task"))


class Watch:
    """Looks at another process every `seconds`, from a thread, until the process ends.

    Args:
        process: Its number.
        count: a function without arguments that returns how much of its work it has done.
        seconds: Between two looks.
    """

    def __init__(self, process: int, count: Callable[[], int], seconds: float = 5.0):
        self.process, self.count, self.seconds, self.seen = process, count, seconds, []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self):
        since = time.monotonic()
        while not self._stop.wait(self.seconds):
            try:
                signs = look(self.process, since)
                self.seen.append(dataclasses.replace(signs, done=self.count()))
            except (OSError, KeyError, IndexError):  # it ends, or has ended
                return

    def close(self) -> list[Signs]:
        """Stops looking; returns what was seen."""
        self._stop.set()
        self._thread.join()
        return self.seen


def compare_ends(seen: list[Signs]) -> dict:
    """Compares the first fifth with the last fifth, by medians.

    Args:
        seen: What was seen of one process after its warm-up.

    Returns:
        The growth of both kinds of memory as a share; of memory in MiB, open files and threads the
        medians of the two fifths, the least and the most.
    """
    fifth = max(len(seen) // 5, 1)
    ends = {}
    for name in ("resident", "anonymous", "files", "threads"):
        values = [getattr(one, name) for one in seen]
        first, last = statistics.median(values[:fifth]), statistics.median(values[-fifth:])
        ends[name] = {"first": first, "last": last, "least": min(values), "most": max(values)}
    growth = {f"{name}_growth": ends[name]["last"] / ends[name]["first"] - 1 for name in MEMORY}
    return {"looks": len(seen), **growth, **ends}


MEMORY = ("resident", "anonymous")


def is_flat(ends: dict) -> bool:
    """Whether neither memory nor open files nor threads grew."""
    kept = all(ends[name]["last"] <= ends[name]["first"] for name in ("files", "threads"))
    return kept and all(ends[f"{name}_growth"] <= BAR for name in MEMORY)
