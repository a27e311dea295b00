"""A run in one process, which several tests compare others with."""

import pytest

from tests.training.processes import RUN
from vit_keras.commands import run


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    """The folder of a run in one process on one device."""
    folder = tmp_path_factory.mktemp("distribution") / "alone"
    run(["train", *RUN, "--workdir", str(folder)])
    return folder
