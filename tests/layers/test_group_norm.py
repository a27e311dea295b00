"""Group normalization against NumPy in float64."""

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy
from vit_keras.layers import GroupNorm


def reference(x, groups, gamma, beta, epsilon):
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
    expected = reference(x.astype("float64"), 4, *weights, 1e-3)
    # What is left of the digits of x, when the mean is subtracted, is exact.
    assert_close(layer(x), expected, rtol=4e-6 if mean == 0 else 5e-5)


def test_sides_need_not_be_known(rng):
    images = keras.Input((None, None, 64))
    layer = GroupNorm()
    model = keras.Model(images, layer(images))
    randomize(layer, rng)
    copy = GroupNorm.from_config(layer.get_config())
    copy.build((None, 4, 6, 64))
    copy.set_weights(layer.get_weights())
    x = rng.normal(size=(2, 4, 6, 64)).astype("float32")
    assert_close(model(x), copy(x), rtol=2e-6)
    assert "axis" not in layer.get_config() and copy.groups == 32
