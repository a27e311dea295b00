"""What a program keeps on a machine: compiled programs and freed memory."""

import os
import platform
import subprocess
import sys

import pytest

from tests.helpers import ROOT
from vit_keras.support import machine

pytestmark = pytest.mark.nightly

CODE = """
import jax, keras
from vit_keras.support import machine
machine.keep_compiled()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
print(float(keras.ops.sum(jax.jit(lambda x: jax.numpy.tanh(x) @ x)(jax.numpy.ones((3, 3))))))
"""


@pytest.mark.on("jax")
def test_the_next_start_finds_what_jax_compiled(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    starts = []
    for _ in range(2):
        run = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True)
        files = {p.name for p in (machine.folder() / "jax").glob("jit__lambda*-cache")}
        starts.append((run.stdout, files))
    assert starts[0] == starts[1] and len(starts[0][1]) == 1


TF_CODE = """
import keras, numpy as np
from vit_keras.support import machine
machine.keep_compiled()
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
model.compile("sgd", "mse", jit_compile=True)
print(model.train_on_batch(np.ones((4, 3)), np.ones((4, 2))))
"""


@pytest.mark.on("tensorflow")
def test_the_next_start_finds_what_tensorflow_compiled(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("TF_XLA_FLAGS")
    starts = []
    for _ in range(2):
        command = [sys.executable, "-c", TF_CODE]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        files = {p: p.stat().st_mtime_ns for p in (machine.folder() / "tensorflow").iterdir()}
        starts.append((run.stdout, files))
    assert starts[0] == starts[1] and float(starts[0][0]) > 0 and starts[0][1]


MEMORY_CODE = """
import ctypes, resource, sys
from vit_keras.support import machine
malloc, free = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
free.argtypes = [ctypes.c_void_p]
if sys.argv[1] == "keep":
    machine.keep_memory()
def turn():
    block = malloc(2**28)
    ctypes.memset(block, 1, 2**28)
    free(block)
turn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
turn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
turn()
small = [malloc(2**23) for _ in range(32)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
turn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.once
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")
def test_freed_memory_is_not_cleared_again():
    def faults(mode, backend="tensorflow"):
        command = [sys.executable, "-c", MEMORY_CODE, mode]
        setting = {**os.environ, "KERAS_BACKEND": backend}
        run = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, env=setting
        )
        return [int(line) for line in run.stdout.split()]

    pages = 2**28 // os.sysconf("SC_PAGE_SIZE")
    assert faults("leave")[0] > pages / 2
    assert faults("keep")[0] < pages / 100 and faults("keep", "torch")[0] < pages / 100
    again, beside_small_ones = faults("keep", "jax")
    assert again < pages / 100 and beside_small_ones < pages / 100
