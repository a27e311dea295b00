"""The memory that this process uses, in GiB."""

import os
import pathlib
import resource
import sys


def peak() -> float:
    """The largest resident memory so far.

    `ru_maxrss` counts the process that started this one, which had its memory before the program.
    """
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        (line,) = (row for row in status.read_text().splitlines() if row.startswith("VmHWM:"))
        return int(line.split()[1]) / 2**20  # kB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def resident() -> float:
    """The resident memory now; on systems without /proc, the peak."""
    try:
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak()
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30


def peak_on_gpu() -> float:
    """The largest memory of the GPU that torch or JAX allocated so far; 0 without a GPU."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    allocated = 0
    if torch and torch.cuda.is_available():
        allocated = torch.cuda.max_memory_allocated()
    if jax and jax.default_backend() == "gpu":
        allocated += jax.local_devices()[0].memory_stats()["peak_bytes_in_use"]
    return allocated / 2**30
