"""Damaged pictures are refused with ValueError, or read; whole ones have Pillow's pixels."""

import io

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from PIL import Image, ImageOps

from tests.fuzz.count_pictures import READ, REFUSED, outcome
from tests.fuzz.pictures import damaged, whole_pictures, with_checksums
from vit_keras.data.pillow_images import read_encoded

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore")]
SETTINGS = {"deadline": None, "database": None, "derandomize": True}


@pytest.fixture(scope="module")
def whole():
    return whole_pictures()


def test_whole_pictures_are_read(whole):
    for name, data in whole.items():
        assert outcome(data)[0] == READ, name
        if "16 bits" not in name:  # of which Pillow keeps 8
            pillows = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
            np.testing.assert_array_equal(read_encoded(data, 3), np.asarray(pillows), name)


def test_damaged_pictures_are_refused_or_read(whole):
    @hypothesis.settings(max_examples=400, **SETTINGS)
    @hypothesis.given(st.sampled_from(sorted(whole)), st.integers(0, 10**6), st.booleans())
    def check(name, seed, mended):
        data = damaged(whole[name], seed)
        data = with_checksums(data) if mended else data
        result, why = outcome(data)
        assert result in (READ, REFUSED), why

    check()
