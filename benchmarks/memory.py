"""The memory that this process uses, in GiB."""

import os
import pathlib
import resource


def peak() -> float:
    """The largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def resident() -> float:
    """The resident memory now; on systems without /proc, the peak."""
    try:
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak()
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30
