"""Patch kernels for other channels and other patch sizes."""

import numpy as np
import pytest

from tests.helpers import assert_close
from vit_keras.support.resizing import (
    INTERPOLATIONS,
    adapt_patch_kernel,
    change_channels,
    resample_patch_kernel,
)

pytestmark = pytest.mark.once


def timm_rule(weight, channels):
    """timm's `adapt_input_conv`, from its description, on `(O, I, h, w)`."""
    if channels == 1:
        return weight.sum(axis=1, keepdims=True)
    repeats = -(-channels // 3)
    return np.tile(weight, (1, repeats, 1, 1))[:, :channels] * (3 / channels)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 8])
def test_channels_follow_timms_rule(rng, channels):
    kernel = rng.normal(size=(4, 5, 3, 7)).astype("float32")
    expected = timm_rule(kernel.transpose(3, 2, 0, 1), channels).transpose(2, 3, 1, 0)
    assert_close(change_channels(kernel, channels), expected, rtol=1e-6)


def test_equal_channels_give_equal_embeddings(rng):
    kernel = rng.normal(size=(4, 4, 3, 7))
    gray = rng.normal(size=(4, 4))
    before = np.einsum("hw,hwcd->d", gray, kernel)
    for channels in (1, 6):
        after = np.einsum("hw,hwcd->d", gray, change_channels(kernel, channels))
        np.testing.assert_allclose(after, before, atol=1e-9)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_enlarged_patches_keep_their_embeddings(rng, interpolation):
    """<x, w> = <B x, w'> for every patch x, which is the purpose of the pseudo-inverse."""
    kernel = rng.normal(size=(4, 3, 2, 6))
    larger = resample_patch_kernel(kernel, (7, 5), interpolation)
    patch = rng.normal(size=(4, 3, 2))
    matrix = INTERPOLATIONS[interpolation]
    resized = np.einsum("ah,bw,hwc->abc", matrix(4, 7), matrix(3, 5), patch)
    before = np.einsum("hwc,hwcd->d", patch, kernel)
    np.testing.assert_allclose(np.einsum("hwc,hwcd->d", resized, larger), before, atol=1e-8)


@pytest.mark.parametrize("new", [(6, 6), (3, 5)])
def test_resampling_equals_the_pseudo_inverse_of_torchs_resize(rng, new):
    torch = pytest.importorskip("torch")
    kernel = rng.normal(size=(4, 4, 2, 3))
    basis = torch.eye(16, dtype=torch.float64).reshape(16, 1, 4, 4)
    resize = torch.nn.functional.interpolate(basis, new, mode="bilinear", align_corners=False)
    matrix = np.linalg.pinv(
        resize.reshape(16, -1).numpy()
    )  # pinv(Bᵀ), (old², new²) -> (new², old²)
    expected = (matrix @ kernel.reshape(16, -1)).reshape(*new, 2, 3)
    np.testing.assert_allclose(resample_patch_kernel(kernel, new), expected, atol=1e-9)


def test_channels_and_size_change_together(rng):
    kernel = rng.normal(size=(4, 4, 3, 5)).astype("float32")
    after = adapt_patch_kernel(kernel, (8, 2), 1, "bilinear_half_pixel")
    expected = resample_patch_kernel(kernel, (8, 2)).sum(axis=2, keepdims=True)
    assert_close(after, expected, rtol=2e-6)
    assert after.dtype == np.float32
