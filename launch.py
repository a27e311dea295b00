"""What a program's environment must say before it loads a framework."""

import os
import pathlib
import sys

HUGE_PAGES = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
TUNABLE = "glibc.malloc.hugetlb"


def prepare() -> None:
    """Sets what makes training fast on CPUs. Call it first thing; it may start the program again.

    Torch's threads would spin while they wait for each other: where the cores are shared, a step of
    a small model took 1545 ms instead of 61.

    glibc gives large blocks back to the system when they are freed, and the next step's are
    cleared anew, 4 KiB at a time: a sixth of a training step in JAX. Where Linux has huge pages for
    programs that ask, as on Ubuntu, malloc asks if `GLIBC_TUNABLES` says so, which it reads before
    Python runs: hence the second start. Where the variable names that tunable already, nothing is
    done.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if TUNABLE in tunables or not _on_request():
        return
    os.environ["GLIBC_TUNABLES"] = ":".join(filter(None, (tunables, f"{TUNABLE}=1")))
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _on_request() -> bool:
    try:
        return "[madvise]" in HUGE_PAGES.read_text()
    except OSError:
        return False
