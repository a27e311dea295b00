"""Fixtures that every test may use."""

import os

import numpy as np
import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as train.py, before torch is loaded
os.environ.setdefault("TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory=")  # keeps nothing


@pytest.fixture
def rng():
    return np.random.default_rng(20201022)


def pytest_collection_modifyitems(config, items):
    """Leaves out what is marked `on` other backends than this one."""
    here = os.environ.get("KERAS_BACKEND", "tensorflow")
    chosen = [i for i in items if all(here in mark.args for mark in i.iter_markers("on"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
