"""Resized position embeddings against the published code's zoom and PyTorch's resize."""

import numpy as np
import pytest

from tests.helpers import GOLDEN, assert_close
from tests.peers import peer
from vit_keras.support import interpolation as resizing

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.once

SIZES = [((4, 4), (6, 6)), ((3, 5), (7, 2)), ((14, 14), (3, 5)), ((4, 4), (1, 7)), ((1, 3), (2, 3))]
TORCH = {
    "bilinear_half_pixel": {"mode": "bilinear", "align_corners": False},
    "bilinear_antialias": {"mode": "bilinear", "align_corners": False, "antialias": True},
    "bilinear": {"mode": "bilinear", "align_corners": True},
    "bicubic": {"mode": "bicubic", "align_corners": False},
    "bicubic_antialias": {"mode": "bicubic", "align_corners": False, "antialias": True},
    "bicubic_offset": {"mode": "bicubic", "align_corners": False},
    "bicubic_aligned": {"mode": "bicubic", "align_corners": True},
}


def torchs_resize(grid, new, interpolation):
    """`(h, w, D)` -> `(h', w', D)`; for "bicubic_offset" by a factor, as in Meta's code."""
    size = {"size": new}
    if interpolation == "bicubic_offset":
        size = {"scale_factor": [(b + 0.1) / a for a, b in zip(grid.shape, new)]}
    channels_first = torch.from_numpy(grid).double().permute(2, 0, 1)[None]
    resized = torch.nn.functional.interpolate(channels_first, **size, **TORCH[interpolation])
    return resized[0].permute(1, 2, 0).numpy()


def test_bilinear_equals_the_published_code():
    with np.load(GOLDEN / "posembed_4to6.npz") as file:
        after = resizing.resize_position_embeddings(file["before"], (4, 4), (6, 6))
        assert_close(after, file["after"], rtol=1e-6)


@pytest.mark.parametrize("interpolation", resizing.INTERPOLATIONS)
@pytest.mark.parametrize(("old", "new"), SIZES)
def test_every_interpolation_equals_torch(rng, interpolation, old, new):
    before = rng.normal(size=(1, 2 + old[0] * old[1], 5)).astype("float32")
    expected = torchs_resize(before[0, 2:].reshape(*old, 5), new, interpolation).reshape(1, -1, 5)
    after = resizing.resize_position_embeddings(before, old, new, interpolation)
    assert_close(after[:, 2:], expected, rtol=1e-6)
    np.testing.assert_array_equal(after[:, :2], before[:, :2])


@pytest.mark.parametrize("interpolation", ["bilinear_half_pixel", "bicubic_antialias"])
@pytest.mark.parametrize(("old", "new"), [((3, 2), (4, 5)), ((4, 3), (2, 3))])
def test_relative_tables_equal_torch(rng, interpolation, old, new):
    sides = [tuple(2 * n - 1 for n in grid) for grid in (old, new)]
    offsets, others = rng.normal(size=(*sides[0], 2)), rng.normal(size=(3, 2))
    table = np.concatenate([offsets.reshape(-1, 2), others])
    after = resizing.resize_relative_table(table, old, new, interpolation)
    expected = torchs_resize(offsets, sides[1], interpolation).reshape(-1, 2)
    np.testing.assert_allclose(after[:-3], expected, atol=1e-9)
    np.testing.assert_array_equal(after[-3:], others)


@pytest.mark.parametrize(("old", "new"), [((4, 4), (6, 6)), ((7, 3), (4, 5))])
def test_the_geometric_rule_equals_timm(rng, old, new):
    relative = peer("timm.layers.pos_embed_rel")
    offsets = [tuple(2 * n - 1 for n in grid) for grid in (old, new)]
    rows = [np.prod(sides) + 3 for sides in offsets]
    table = rng.normal(size=(rows[0], 2)).astype("float32")
    expected = relative.resize_rel_pos_bias_table(
        torch.from_numpy(table), new, (rows[1], 2), old_window_size=old
    )
    after = resizing.resize_relative_table(table, old, new, "bilinear_geometric")
    assert_close(after, expected.numpy(), rtol=2e-6)
    with pytest.raises(ValueError, match='"bilinear_geometric" needs an odd number of offsets'):
        resizing.resize_position_embeddings(
            np.zeros((1, 16, 4)), (4, 4), (2, 8), "bilinear_geometric"
        )


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 8])
def test_channels_follow_timms_rule(rng, channels):
    kernel = rng.normal(size=(4, 5, 3, 7)).astype("float32")
    theirs = torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy())  # (O, I, h, w)
    expected = peer("timm.models._manipulate").adapt_input_conv(channels, theirs)
    actual = resizing.change_channels(kernel, channels)
    assert_close(actual, expected.numpy().transpose(2, 3, 1, 0), rtol=1e-6)


@pytest.mark.parametrize("interpolation", resizing.INTERPOLATIONS)
def test_enlarged_patches_keep_their_embeddings(rng, interpolation):
    """<x, w> = <B x, w'> for every patch x, which is the purpose of the pseudo-inverse."""
    kernel = rng.normal(size=(4, 3, 2, 6))
    larger = resizing.resample_patch_kernel(kernel, (7, 5), interpolation)
    patch = rng.normal(size=(4, 3, 2))
    matrix = resizing.INTERPOLATIONS[interpolation]
    resized = np.einsum("ah,bw,hwc->abc", matrix(4, 7), matrix(3, 5), patch)
    before = np.einsum("hwc,hwcd->d", patch, kernel)
    np.testing.assert_allclose(np.einsum("hwc,hwcd->d", resized, larger), before, atol=1e-8)
