"""Weight-standardized convolutions and the root of ResNets, against loops in NumPy."""

import keras
import numpy as np
import pytest

from tests import resnet_reference as reference
from tests.helpers import assert_close, randomize, spread, to_numpy
from vit_keras.layers import RootBlock, StdConv


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


@pytest.mark.parametrize("size", [(12, 17), (9, 6)])
def test_root_pools_zeros_at_the_borders(rng, size):
    layer = RootBlock(32)
    x = rng.normal(size=(2, *size, 3)).astype("float32")
    layer.build(x.shape)
    kernel = rng.normal(size=layer.conv_root.kernel.shape)
    layer.conv_root.kernel.assign(kernel)
    y = reference.convolve(x, reference.standardize(kernel, "bit"), 2, "fixed")
    expected = reference.max_pool(y, "fixed")
    assert not np.allclose(expected, reference.max_pool(np.pad(y, 0), "same"))
    assert layer.compute_output_shape(x.shape) == expected.shape
    assert_close(layer(x), expected)


def test_gradient_of_a_constant_filter_is_finite():
    model = keras.Sequential([keras.Input((4, 4, 2)), StdConv(3, 1), keras.layers.Flatten()])
    randomize(model, np.random.default_rng(0), scale=0)  # a standard deviation of 0
    model.compile("sgd", "mse")
    x = np.random.default_rng(1).normal(size=(2, 4, 4, 2)).astype("float32")
    model.fit(x, np.ones((2, 48), "float32"), verbose=0)
    assert np.isfinite(to_numpy(model.weights[0].value)).all()
