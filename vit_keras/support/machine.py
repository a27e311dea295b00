"""Keeps compiled programs and freed memory, describes the machine, and uses its cores."""

import collections
import contextlib
import functools
import hashlib
import importlib.metadata
import itertools
import os
import pathlib
import platform
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL, c_size_t, c_void_p
from typing import TypeVar

from vit_keras.support.extras import BACKENDS

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # of glibc's malloc.h
BLOCK_BYTES, NUM_BLOCKS = 2**26, 64


def folder() -> pathlib.Path:
    """Returns the folder for this kind of processor, in `KERAS_HOME` or in `~/.keras`."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        lines = [f"model {platform.machine()} {platform.processor()}"]
    kinds = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU part", "Features")
    processor = "\n".join(line for line in lines if line.startswith(kinds))
    digest = hashlib.blake2s(processor.encode(), digest_size=8).hexdigest()
    home = pathlib.Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser()
    return home / "vit_keras" / f"processor_{digest}"


def cores() -> int:
    """Returns the number of processors that this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prepare() -> None:
    """Makes this program keep compiled programs and freed memory; call it at the start."""
    keep_compiled()
    keep_memory()


def keep_compiled() -> None:
    """Lets JAX, or XLA in TensorFlow, keep compiled programs for the next start.

    Call it before anything is compiled. If the user names another folder, through
    `JAX_COMPILATION_CACHE_DIR` or `TF_XLA_FLAGS`, nothing changes.
    """
    import keras

    flags = os.environ.get("TF_XLA_FLAGS", "")
    if keras.backend.backend() == "jax":
        import jax

        if jax.config.jax_compilation_cache_dir is None:
            jax.config.update("jax_compilation_cache_dir", str(folder() / "jax"))
    elif keras.backend.backend() == "tensorflow" and "persistent_cache_directory" not in flags:
        cache = folder() / "tensorflow"  # XLA reads the flags when it first compiles
        cache.mkdir(parents=True, exist_ok=True)
        directory = f"--tf_xla_persistent_cache_directory={cache}"
        devices = "--tf_xla_persistent_cache_device_types=CPU"
        os.environ["TF_XLA_FLAGS"] = f"{flags} {directory} {devices}"


def keep_memory() -> None:
    """Lets this process keep freed memory for its next allocations.

    glibc returns large blocks to the system at once. The next training step requests the same
    blocks, and the system clears each of their pages again. Without glibc, nothing changes. A
    program may call this function at its start; a library should not.
    """
    import keras

    backend = keras.backend.backend()
    try:
        mallopt = CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_MAX, 0)  # no separate mappings, which would be returned
    mallopt(M_TRIM_THRESHOLD, -1)  # never return the end of the heap
    if backend != "torch":  # torch's threads would wait for each other
        mallopt(M_ARENA_MAX, 1)  # the heaps of threads are too small for large blocks
    if backend == "jax":
        _make_room()


Item = TypeVar("Item")
Result = TypeVar("Result")
MOST_THREADS = 8  # each may hold a large photograph


def read_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], ahead: int = 256
) -> Generator[Result, None, None]:
    """Yields `function(item)` for each item in order, computed in threads before it is needed.

    Args:
        function: What the threads call. An exception is raised here, in place of the result.
        items: The arguments, taken one by one.
        ahead: The number of results to compute in advance, and the most to keep.

    Example:
        ```python
        for picture in read_ahead(read, paths, ahead=64):
            ...
        ```
    """
    items = iter(items)
    threads = ThreadPoolExecutor(min(cores(), MOST_THREADS), "read_ahead")
    submit = lambda count: [threads.submit(function, x) for x in itertools.islice(items, count)]
    try:
        waiting = collections.deque(submit(ahead))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(submit(1))
            yield result
    finally:
        threads.shutdown(cancel_futures=True)


@functools.cache
def _make_room():
    """Reserves addresses for small blocks by freeing every other one of many large blocks.

    XLA allocates all memory for a step as one block. Between steps, malloc would cut smaller blocks
    from it, and the next step would need a second large block. Now malloc cuts them from the freed
    blocks, which are smaller. No page is taken before it is used.
    """
    libc = CDLL("libc.so.6")
    malloc, free = libc.malloc, libc.free
    malloc.restype, malloc.argtypes, free.argtypes = c_void_p, [c_size_t], [c_void_p]
    for block in [malloc(BLOCK_BYTES) for _ in range(2 * NUM_BLOCKS)][::2]:
        free(block)


PACKAGES = ("keras", *BACKENDS, "numpy", "keras-cv", "tensorflow-datasets", "scikit-learn")


def describe_environment() -> dict[str, str | int | None]:
    """The backend, versions and machine, for readers who want to reproduce the numbers."""
    import keras

    versions: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "backend": keras.backend.backend(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        **versions,
    }
