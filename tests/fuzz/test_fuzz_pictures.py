"""Damaged pictures: both decoders refuse them with ValueError, or read the same pixels."""

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.fuzz.count_pictures import EQUAL, REFUSED, both_readers, outcome
from tests.fuzz.pictures import damaged, whole_pictures, with_checksums

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore")]
SETTINGS = {"deadline": None, "database": None, "derandomize": True}


@pytest.fixture(scope="module")
def read_both():
    return both_readers()


@pytest.fixture(scope="module")
def whole():
    return whole_pictures()


def test_whole_pictures_are_read_alike(read_both, whole):
    for name, data in whole.items():
        tolerance = int(name.startswith("webp"))  # TensorFlow and Pillow have their own libwebp
        assert outcome(read_both, data, tolerance)[0] == EQUAL, name


def test_damaged_pictures_are_refused_or_read_alike(read_both, whole):
    @hypothesis.settings(max_examples=400, **SETTINGS)
    @hypothesis.given(st.sampled_from(sorted(whole)), st.integers(0, 10**6), st.booleans())
    def check(name, seed, mended):
        data = damaged(whole[name], seed)
        data = with_checksums(data) if mended else data
        result, why = outcome(read_both, data, int(name.startswith("webp")))
        assert result in (EQUAL, REFUSED), why

    check()
