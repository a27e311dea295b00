"""Bottleneck units and stages against loops in NumPy, on maps that are not square."""

import numpy as np

from tests import resnet_reference as reference
from tests.helpers import assert_close, randomize, spread, to_numpy, weights_by_path
from vit_keras.layers import BottleneckUnit, PreActivationUnit

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


def test_post_activation_unit_starts_as_its_shortcut(rng):
    x = rng.uniform(0, 1, (2, 4, 6, 128)).astype("float32")
    np.testing.assert_array_equal(to_numpy(BottleneckUnit(32, seed=1)(x)), x)
