"""Fixtures that every test may use."""

import os
import shutil
import tempfile

import numpy as np
import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as train.py, before torch is loaded
os.environ.setdefault("TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory=")  # keeps nothing

# Most of a suite on JAX is compiling small models: here with little optimization, and once for all
# tests and their processes. Fitting a small ViT again then takes 1 s instead of 7.
COMPILED = tempfile.mkdtemp(prefix="vit_keras_compiled_")
if os.environ.get("KERAS_BACKEND") == "jax":  # TensorFlow reads XLA's flags too
    os.environ.setdefault(
        "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    )
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", COMPILED)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


@pytest.fixture
def rng():
    return np.random.default_rng(20201022)


def pytest_collection_modifyitems(config, items):
    """Leaves out what is marked `on` other backends than this one."""
    here = os.environ.get("KERAS_BACKEND", "tensorflow")
    chosen = [i for i in items if all(here in mark.args for mark in i.iter_markers("on"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def pytest_unconfigure():
    shutil.rmtree(COMPILED, ignore_errors=True)
