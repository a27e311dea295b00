"""Builds the library that makes system calls fail, and speaks with it.

The library stands before the C library in every process that has `LD_PRELOAD`. Within a process it
counts the calls on files whose path begins with a folder's, and can fail or kill at one of them.
"""

import contextlib
import ctypes
import errno
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

SOURCE = pathlib.Path(__file__).with_name("shim.c")
COUNT, ONCE, ON, KILL, TEAR = range(5)  # as in shim.c
# What happens at a call. "stays" fails later calls too, as such a disk would.
FAULTS = {
    "ENOSPC": (errno.ENOSPC, ONCE),
    "ENOSPC stays": (errno.ENOSPC, ON),
    "EIO": (errno.EIO, ONCE),
    "EIO stays": (errno.EIO, ON),
    "EINTR": (errno.EINTR, ONCE),
    "EROFS stays": (errno.EROFS, ON),
    "kill": (0, KILL),
    "kill, torn write": (0, TEAR),
}


def build(folder: str | os.PathLike) -> str:
    """Compiles the library into a folder, and returns its path. It needs gcc or another `cc`."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("These tests need a C compiler: install gcc, or set CC")
    library = os.path.join(folder, "shim.so")
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", SOURCE, "-o", library]
    subprocess.run([*map(str, command), "-ldl"], check=True)
    return library


def kill_at(folder: str | os.PathLike, call: str, at: int) -> None:
    """Kills this process at number `at` of the calls "write", …, or of the "torn write"."""
    library = ctypes.CDLL(os.environ["LD_PRELOAD"])
    mode = TEAR if call.startswith("torn") else KILL
    name = call.removeprefix("torn ").encode()
    library.faults_arm(os.fsencode(os.path.abspath(folder)), name, ctypes.c_long(at), 0, mode)


@contextlib.contextmanager
def watching(folder: str | os.PathLike, fault: str | None = None, at: int = 0) -> Iterator[list]:
    """Lists the calls on files under `folder`, and lets `fault` happen at call number `at`.

    The list of their names, such as "open" and "write", is filled at the end.
    """
    library = ctypes.CDLL(os.environ["LD_PRELOAD"])
    library.faults_log.restype = ctypes.c_char_p
    number, mode = FAULTS[fault] if fault else (0, COUNT)
    library.faults_arm(os.fsencode(folder), b"", ctypes.c_long(at), number, mode)
    try:
        yield (names := [])
    finally:
        library.faults_disarm()
        names += library.faults_log().decode().split()
