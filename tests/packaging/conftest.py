"""The wheel, built once."""

import pytest

from tests.packaging import environment


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The folder of the sdist and of the wheel that the sdist builds."""
    return environment.build(tmp_path_factory.mktemp("built")).parent


@pytest.fixture(scope="session")
def wheel(built):
    return next(built.glob("*.whl"))
