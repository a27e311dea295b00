"""Weight-standardized convolutions and the root of ResNets, against loops in NumPy."""

import keras
import numpy as np
import pytest

from tests import resnet_reference as reference
from tests.helpers import assert_close, randomize, to_numpy
from vit_keras.layers import ResNetInput, RootBlock, StdConv


@pytest.mark.parametrize("size", [(6, 9), (7, 8)])  # odd sides show where "same" pads
@pytest.mark.parametrize(("kernel_size", "strides"), [(1, 1), (1, 2), (3, 1), (3, 2), (7, 2)])
@pytest.mark.parametrize("padding", ["same", "fixed"])
@pytest.mark.parametrize("standardization", ["vit", "bit", "timm"])
def test_convolution_equals_loops(rng, size, kernel_size, strides, padding, standardization):
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


def test_conventions_of_epsilon_differ():
    kernel = np.array([1e-5, -1e-5], "float32").reshape(1, 1, 2, 1)  # deviation 1e-5
    expected = {"vit": 1 / 2, "bit": np.sqrt(1 / 2), "timm": np.sqrt(1 / 101)}
    for standardization, value in expected.items():
        layer = StdConv(1, 1, standardization=standardization)
        layer.build((None, 1, 1, 2))
        layer.kernel.assign(kernel)
        got = to_numpy(layer.standardized_kernel()).ravel()
        assert_close(got, [value, -value])


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StdConv(4, 2), "`kernel_size` must be odd.*kernel_size=2"),
        (lambda: StdConv(0, 3), "`filters` must be a positive int.*filters=0"),
        (lambda: StdConv(4, 3, padding="valid"), "`padding` must be one of 'same', 'fixed'"),
        (lambda: StdConv(4, 3, standardization="x"), "`standardization` must be one of 'vit'"),
        (lambda: ResNetInput(0), "`total_stride` must be a positive int or a pair"),
        (
            lambda: ResNetInput((32, 16)).build((None, 70, 64, 3)),
            r"multiple of the total stride.*\(32, 16\) pixels.*\(70, 64\).*fits is \(64, 64\)",
        ),
        (lambda: ResNetInput(8).build((None, None, 64, 3)), "must be known when a hybrid is"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_configuration_makes_the_same_layer(rng):
    layers = [
        StdConv(8, 3, 2, "fixed", "bit", seed=7),
        RootBlock(32, "timm", seed=8),
        ResNetInput((4, 8)),
    ]
    x = rng.normal(size=(1, 8, 8, 3)).astype("float32")
    for layer in layers:
        again = type(layer).from_config(layer.get_config())
        assert again.get_config() == layer.get_config()
        np.testing.assert_array_equal(to_numpy(again(x)), to_numpy(layer(x)))


def test_gradient_of_a_constant_filter_is_finite():
    model = keras.Sequential([keras.Input((4, 4, 2)), StdConv(3, 1), keras.layers.Flatten()])
    randomize(model, np.random.default_rng(0), scale=0)  # a standard deviation of 0
    model.compile("sgd", "mse")
    x = np.random.default_rng(1).normal(size=(2, 4, 4, 2)).astype("float32")
    model.fit(x, np.ones((2, 48), "float32"), verbose=0)
    assert np.isfinite(to_numpy(model.weights[0].value)).all()
