"""What is kept of a machine: choices that were measured, compiled programs, memory."""

import functools
import hashlib
import os
import pathlib
import platform
from ctypes import CDLL, c_size_t, c_void_p

import keras

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # of glibc's malloc.h
ROOM, ROOMS = 2**26, 64  # bytes, and how many


def folder() -> pathlib.Path:
    """Where it is kept, of each kind of processor apart: in `KERAS_HOME`, `~/.keras` by default."""
    digest = hashlib.blake2s(_processor().encode(), digest_size=8).hexdigest()
    home = pathlib.Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser()
    return home / "vit_keras" / f"processor_{digest}"


def _processor() -> str:
    """The first processor's kind and instructions."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    kinds = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU part", "Features")
    return "\n".join(line for line in lines if line.startswith(kinds))


def prepare() -> None:
    """What a program of ours does at its start: it keeps what it compiles and frees."""
    keep_compiled()
    keep_memory()


def keep_compiled() -> None:
    """Lets JAX, or XLA in TensorFlow, keep what it compiles, for the next start.

    Call it before anything is compiled. Where the user names another place, by
    `JAX_COMPILATION_CACHE_DIR` or in `TF_XLA_FLAGS`, nothing is changed.
    """
    keep = {"jax": _keep_jax, "tensorflow": _keep_tensorflow}.get(keras.backend.backend())
    if keep:
        keep()


def _keep_jax():
    import jax

    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(folder() / "jax"))


def _keep_tensorflow():
    """XLA reads its flags when it first compiles."""
    flags = os.environ.get("TF_XLA_FLAGS", "")
    if "persistent_cache_directory" not in flags:
        place = folder() / "tensorflow"
        place.mkdir(parents=True, exist_ok=True)
        ours = f"--tf_xla_persistent_cache_directory={place}"
        os.environ["TF_XLA_FLAGS"] = f"{flags} {ours} --tf_xla_persistent_cache_device_types=CPU"


def keep_memory() -> None:
    """Lets this process keep the memory that it frees, for what it allocates next.

    glibc gives large blocks back to the system at once, and a training step asks for the same ones
    again: the system then clears each of their pages anew. Only glibc is told so; elsewhere nothing
    changes. A program may call it, at its start; a library should not.
    """
    backend = keras.backend.backend()
    try:
        mallopt = CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_MAX, 0)  # no blocks of their own, which are given back
    mallopt(M_TRIM_THRESHOLD, -1)  # nor the end of the heap
    if backend != "torch":  # whose threads would wait for each other
        mallopt(M_ARENA_MAX, 1)  # the heaps of threads are too small for large blocks
    if backend == "jax":
        _make_room()


@functools.cache
def _make_room():
    """Frees every other one of many blocks of addresses; no page is taken before it is used.

    XLA asks for all that a step needs as one block. Between steps smaller ones would be cut from
    it, and the next step take a second; malloc cuts them from these, which are smaller.
    """
    libc = CDLL("libc.so.6")
    malloc, free = libc.malloc, libc.free
    malloc.restype, malloc.argtypes, free.argtypes = c_void_p, [c_size_t], [c_void_p]
    for block in [malloc(ROOM) for _ in range(2 * ROOMS)][::2]:
        free(block)
