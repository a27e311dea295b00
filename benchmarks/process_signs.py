"""What a process holds at a moment: its memory, open files and threads, from `/proc`."""

import dataclasses
import os
import pathlib
import statistics
import threading
import time

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
    """

    age: float
    resident: float
    anonymous: float
    files: int
    threads: int


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
    """Looks at another process every `seconds`, from a thread, until the process ends."""

    def __init__(self, process: int, seconds: float = 5.0):
        self.process, self.seconds, self.seen = process, seconds, []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self):
        since = time.monotonic()
        while not self._stop.wait(self.seconds):
            try:
                self.seen.append(look(self.process, since))
            except (OSError, KeyError, IndexError):  # it ends, or has ended
                return

    def close(self) -> list[Signs]:
        """Stops looking; returns what was seen."""
        self._stop.set()
        self._thread.join()
        return self.seen


def compare_ends(seen: list[Signs], warm_up: int) -> dict:
    """Compares the first fifth after the warm-up with the last fifth, by medians.

    Args:
        seen: What was seen of one process.
        warm_up: How many looks at the beginning are left out.

    Returns:
        The growth of both kinds of memory as a share, the MiB at the end, the least and most
        open files and threads after the warm-up, and their medians in the two fifths.
    """
    seen = seen[warm_up:]
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
