"""The pictures of the studies, written once."""

import pytest

from studies.digits_scale import DigitsScale, write_tables


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures") / "data"
    write_tables(folder)
    return folder


@pytest.fixture
def digits_scale(tmp_path, pictures):
    """Makes a scale whose pictures are there."""
    (tmp_path / "data").symlink_to(pictures)
    return lambda *steps: DigitsScale(tmp_path, *steps)
