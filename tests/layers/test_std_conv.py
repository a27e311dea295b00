"""Convolutions and group norms of BiT equal loops, and keep their digits."""

import keras
import numpy as np
import pytest

from tests import resnet_reference as reference
from tests.helpers import assert_close, randomize, spread, to_numpy
from vit_keras.layers import GroupNorm, StdConv


@spread(
    size=[(6, 9), (7, 8)],  # odd sides show where "same" pads
    kernel=[(1, 2), (3, 1), (7, 2)],
    padding=["same", "fixed"],
    standardization=["vit", "bit", "timm"],
)
def test_convolution_equals_loops(rng, size, kernel, padding, standardization):
    kernel_size, strides = kernel
    layer = StdConv(5, kernel_size, strides, padding, standardization)
    x = rng.normal(size=(2, *size, 4)).astype("float32")
    layer.build(x.shape)
    # So small that the three epsilons matter, with a mean to be removed.
    kernel = (1e-4 * (0.5 + rng.normal(size=layer.kernel.shape))).astype("float32")
    layer.kernel.assign(kernel)
    kernel = reference.standardize(kernel, standardization)
    expected = reference.convolve(x.astype("float64"), kernel, strides, padding)
    assert layer.compute_output_shape(x.shape) == expected.shape
    assert_close(layer(x), expected)


def test_kernel_is_standardized_at_full_precision_then_rounded(rng):
    layer = StdConv(3, 3, dtype="mixed_bfloat16")
    x = rng.normal(size=(1, 5, 5, 64)).astype("float32")
    layer.build(x.shape)
    layer.kernel.assign(100 + 0.01 * rng.normal(size=layer.kernel.shape))  # bfloat16: all 100
    kernel = reference.standardize(to_numpy(layer.kernel.value), "vit")
    expected = reference.convolve(x.astype("float64"), kernel)
    y = layer(x)
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    error = to_numpy(keras.ops.cast(y, "float32")) - expected
    assert np.abs(error).max() < 0.03 * np.abs(expected).max()


@pytest.mark.parametrize("mean", [0, 300])
def test_a_large_mean_costs_no_digits(rng, mean):
    layer = GroupNorm(4, epsilon=1e-3)
    x = (mean + rng.normal(size=(2, 5, 3, 12))).astype("float32")
    layer.build(x.shape)
    randomize(layer, rng)
    weights = {"norm/gamma": to_numpy(layer.gamma), "norm/beta": to_numpy(layer.beta)}
    expected = reference.group_norm(x.astype("float64"), weights, "norm", 1e-3, groups=4)
    # What is left of the digits of x, when the mean is subtracted, is exact.
    assert_close(layer(x), expected, rtol=4e-6 if mean == 0 else 5e-5)
