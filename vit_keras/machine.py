"""What is kept of a machine: choices that were measured, programs that were compiled on it."""

import hashlib
import os
import pathlib
import platform

import keras


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


def keep_compiled() -> None:
    """Lets JAX keep what it compiles, for the next start; where the user says no other place."""
    if keras.backend.backend() != "jax":
        return
    import jax

    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(folder() / "jax"))
