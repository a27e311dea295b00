"""Resized position embeddings against the published code's zoom and PyTorch's resize."""

import numpy as np
import pytest

from tests.helpers import GOLDEN
from vit_keras.resizing import INTERPOLATIONS, resize_position_embeddings

pytestmark = pytest.mark.once

SIZES = [((4, 4), (6, 6)), ((6, 6), (4, 4)), ((3, 5), (7, 2)), ((2, 7), (9, 7)), ((14, 14), (3, 5))]
TORCH = {
    "bilinear_half_pixel": {"mode": "bilinear", "align_corners": False},
    "bilinear_antialias": {"mode": "bilinear", "align_corners": False, "antialias": True},
    "bilinear": {"mode": "bilinear", "align_corners": True},
    "bicubic": {"mode": "bicubic", "align_corners": False},
    "bicubic_antialias": {"mode": "bicubic", "align_corners": False, "antialias": True},
    "bicubic_aligned": {"mode": "bicubic", "align_corners": True},
}


def test_bilinear_equals_the_published_code():
    with np.load(GOLDEN / "posembed_4to6.npz") as file:
        after = resize_position_embeddings(file["before"], (4, 4), (6, 6))
        np.testing.assert_allclose(after, file["after"], atol=1e-6, rtol=0)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize(("old", "new"), SIZES)
def test_every_interpolation_equals_torch(rng, interpolation, old, new):
    torch = pytest.importorskip("torch")
    before = rng.normal(size=(1, 2 + old[0] * old[1], 5)).astype("float32")
    grid = torch.from_numpy(before[:, 2:].reshape(1, *old, 5)).permute(0, 3, 1, 2).double()
    resized = torch.nn.functional.interpolate(grid, size=new, **TORCH[interpolation])
    expected = resized.permute(0, 2, 3, 1).reshape(1, -1, 5).numpy()
    after = resize_position_embeddings(before, old, new, interpolation)
    np.testing.assert_allclose(after[:, 2:], expected, atol=2e-6, rtol=0)
    np.testing.assert_array_equal(after[:, :2], before[:, :2])


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_the_same_grid_stays_as_it_is(rng, interpolation):
    before = rng.normal(size=(1, 15, 4)).astype("float32")
    after = resize_position_embeddings(before, (3, 5), (3, 5), interpolation)
    np.testing.assert_allclose(after, before, atol=1e-6, rtol=0)


def test_wrong_grids_and_interpolations_are_named(rng):
    before = rng.normal(size=(1, 10, 4))
    with pytest.raises(ValueError, match=r"4x4 needs 16 position embeddings\. Received: 10"):
        resize_position_embeddings(before, (4, 4), (2, 2))
    with pytest.raises(ValueError, match=r"must be one of 'bilinear'.*interpolation='lanczos'"):
        resize_position_embeddings(before, (3, 3), (2, 2), "lanczos")
