"""Fixtures of the layers' tests."""

import pytest

from vit_keras.layers import backends


@pytest.fixture
def default_choices():
    """The choices of a test end with it."""
    backends.use({})
    yield
    backends.use({})
