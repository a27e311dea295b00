"""Damaged pictures are refused with ValueError, or read; whole ones have Pillow's pixels."""

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.fuzz.count_pictures import READ, REFUSED, outcome
from tests.fuzz.pictures import damaged, whole_pictures, with_checksums

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore")]
SETTINGS = {"deadline": None, "database": None, "derandomize": True}


@pytest.fixture(scope="module")
def whole():
    return whole_pictures()


def test_damaged_pictures_are_refused_or_read(whole):
    @hypothesis.settings(max_examples=400, **SETTINGS)
    @hypothesis.given(st.sampled_from(sorted(whole)), st.integers(0, 10**6), st.booleans())
    def check(name, seed, mended):
        data = damaged(whole[name], seed)
        data = with_checksums(data) if mended else data
        result, why = outcome(data)
        assert result in (READ, REFUSED), why

    check()
