"""Fixtures of the layers' tests."""

import pytest

from vit_keras.layers import kernels


@pytest.fixture
def default_choices():
    """The choices of a test end with it."""
    kernels.use({})
    yield
    kernels.use({})
