"""Fixtures of the tests that run other projects' suites and tools on our models."""

import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", "requires_trainable_backend: of Keras' own tests")


@pytest.fixture
def refused(record_property):
    """Notes why a case is refused, for the figures of `benchmarks.neighbor_suites`."""
    return lambda reason: record_property("refused", reason)
