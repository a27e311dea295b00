"""Fixtures that every test may use."""

import os

import numpy as np
import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as train.py, before torch is loaded


@pytest.fixture
def rng():
    return np.random.default_rng(20201022)
