"""Convolutions, bottlenecks and group norms of BiT equal loops, and keep their digits."""

import keras
import numpy as np
import pytest

from tests import resnet_reference as reference
from tests.helpers import assert_close, randomize, spread, to_numpy, weights_by_path
from vit_keras.layers import BottleneckUnit, GroupNorm, PreActivationUnit, StdConv


@spread(
    size=[(6, 9), (7, 8)],  # odd sides show where "same" pads
    kernel=[(1, 1), (1, 2), (3, 1), (3, 2), (7, 2)],
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


UNITS = {
    "post": (BottleneckUnit, reference.post_unit),
    "pre": (PreActivationUnit, reference.pre_unit),
}


def float64(weights):
    return {name: np.asarray(value, "float64") for name, value in weights.items()}


@spread(
    activation=[*UNITS],
    shape=[(64, 1), (128, 1), (128, 2)],
    size=[(5, 8), (6, 3)],
    numerics=[{}, {"standardization": "timm", "group_norm_epsilon": 1e-2}],
)
def test_unit_equals_loops(rng, activation, shape, size, numerics):
    channels, strides = shape
    kind, expected_unit = UNITS[activation]
    unit = kind(32, strides, **numerics, name="unit")
    x = rng.normal(size=(2, *size, channels)).astype("float32")
    unit.build(x.shape)
    randomize(unit, rng)
    weights = float64(weights_by_path(unit))
    assert ("unit/conv_proj/kernel" in weights) == (channels != 128 or strides != 1)
    convention = {"convention": numerics["standardization"]} if numerics else {}
    epsilon = {"epsilon": numerics["group_norm_epsilon"]} if numerics else {}
    expected = expected_unit(x.astype("float64"), weights, "unit", strides, **convention, **epsilon)
    assert unit.compute_output_shape(x.shape) == expected.shape
    assert_close(unit(x), expected)


def normalized_by_groups(x, groups, gamma, beta, epsilon):
    """Of (B, H, W, C), group by group."""
    y = np.empty(x.shape)
    for group in np.array_split(np.arange(x.shape[-1]), groups):
        values = x[..., group]
        mean = values.mean((1, 2, 3), keepdims=True)
        variance = ((values - mean) ** 2).mean((1, 2, 3), keepdims=True)
        y[..., group] = (values - mean) / np.sqrt(variance + epsilon)
    return y * gamma + beta


@pytest.mark.parametrize("mean", [0, 300])
def test_a_large_mean_costs_no_digits(rng, mean):
    layer = GroupNorm(4, epsilon=1e-3)
    x = (mean + rng.normal(size=(2, 5, 3, 12))).astype("float32")
    layer.build(x.shape)
    randomize(layer, rng)
    weights = (to_numpy(layer.gamma.value), to_numpy(layer.beta.value))
    expected = normalized_by_groups(x.astype("float64"), 4, *weights, 1e-3)
    # What is left of the digits of x, when the mean is subtracted, is exact.
    assert_close(layer(x), expected, rtol=4e-6 if mean == 0 else 5e-5)
