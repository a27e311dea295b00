"""What a program keeps on a machine: compiled programs and freed memory."""

import os
import platform

import keras
import pytest

from tests.helpers import run_script
from vit_keras.support import machine

pytestmark = pytest.mark.nightly
CODE = {
    "jax": """
import jax, keras
from vit_keras.support import machine
machine.keep_compiled()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
print(float(keras.ops.sum(jax.jit(lambda x: jax.numpy.tanh(x) @ x)(jax.numpy.ones((3, 3))))))
""",
    "tensorflow": """
import keras, numpy as np
from vit_keras.support import machine
machine.keep_compiled()
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
model.compile("sgd", "mse", jit_compile=True)
print(model.train_on_batch(np.ones((4, 3)), np.ones((4, 2))))
""",
}


@pytest.mark.on("jax", "tensorflow")
def test_the_next_start_finds_what_was_compiled(monkeypatch, tmp_path):
    backend, starts = keras.backend.backend(), []
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    for name in ("JAX_COMPILATION_CACHE_DIR", "TF_XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    for _ in range(2):
        printed = run_script("-c", CODE[backend]).stdout
        names = "jit__lambda*-cache" if backend == "jax" else "*"
        files = {p: p.stat().st_mtime_ns for p in (machine.folder() / backend).glob(names)}
        starts.append((float(printed), files))
    assert starts[0] == starts[1] and starts[0][0] > 0 and starts[0][1]


MEMORY_CODE = """
import ctypes, resource, sys
from vit_keras.support import machine
malloc, free = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
free.argtypes = [ctypes.c_void_p]
if sys.argv[1] == "keep":
    machine.keep_memory()
def turn():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = malloc(2**28)
    ctypes.memset(block, 1, 2**28)
    free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
turn()
print(turn())
small = [malloc(2**23) for _ in range(32)]
print(turn())
"""


@pytest.mark.once
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")
def test_freed_memory_is_not_cleared_again():
    def faults(mode, backend):
        printed = run_script("-c", MEMORY_CODE, mode, backend=backend).stdout
        return [int(line) for line in printed.split()]

    pages = 2**28 // os.sysconf("SC_PAGE_SIZE")
    assert faults("leave", "torch")[0] > pages / 2
    assert faults("keep", "tensorflow")[0] < pages / 100
    assert faults("keep", "torch")[0] < pages / 100
    assert max(faults("keep", "jax")) < pages / 100  # also beside small blocks
