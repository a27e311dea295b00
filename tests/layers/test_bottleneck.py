"""Bottleneck units and stages against loops in NumPy, on maps that are not square."""

import keras
import numpy as np
import pytest

from tests import resnet_reference as reference
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras.layers import BottleneckUnit, PreActivationUnit, ResNetStage

UNITS = {
    "post": (BottleneckUnit, reference.post_unit),
    "pre": (PreActivationUnit, reference.pre_unit),
}


def float64(weights):
    return {name: np.asarray(value, "float64") for name, value in weights.items()}


@pytest.mark.parametrize("activation", UNITS)
@pytest.mark.parametrize(("channels", "strides"), [(64, 1), (128, 1), (128, 2)])
@pytest.mark.parametrize("size", [(5, 8), (6, 3)])
@pytest.mark.parametrize("numerics", [{}, {"standardization": "timm", "group_norm_epsilon": 1e-2}])
def test_unit_equals_loops(rng, activation, channels, strides, size, numerics):
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


@pytest.mark.parametrize(("activation", "second"), [("post", "unit2"), ("pre", "unit02")])
def test_only_the_first_unit_of_a_stage_strides(rng, activation, second):
    stage = ResNetStage(2, 32, 2, activation, name="block")
    x = rng.normal(size=(1, 7, 4, 64)).astype("float32")
    stage.build(x.shape)
    randomize(stage, rng)
    weights = float64(weights_by_path(stage))
    unit = UNITS[activation][1]
    same = {"convention": "vit", "epsilon": 1e-6}
    y = unit(x.astype("float64"), weights, f"block/{second.replace('2', '1')}", 2, **same)
    expected = unit(y, weights, f"block/{second}", 1, **same)
    assert_close(stage(x), expected)


@pytest.mark.parametrize(
    "layer",
    [
        BottleneckUnit(32, 2, "timm", 1e-4, seed=5),
        PreActivationUnit(32, 2, "vit", 1e-4, seed=6),
        ResNetStage(2, 32, 2, "pre", "bit", 1e-5, seed=7),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_configuration_and_seed_make_the_same_layer(rng, layer):
    x = rng.normal(size=(1, 4, 4, 32)).astype("float32")
    config = keras.saving.serialize_keras_object(layer)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == layer.get_config()
    np.testing.assert_array_equal(to_numpy(again(x)), to_numpy(layer(x)))
    kernels = [w for w in again.weights if w.path.endswith("kernel")]
    drawn = {to_numpy(w.value).ravel()[0] for w in kernels}
    assert len(drawn) == len(kernels)  # no two layers draw the same numbers


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BottleneckUnit(0), "`filters` must be a positive int.*filters=0"),
        (lambda: PreActivationUnit(32, strides=0), "`strides` must be a positive int"),
        (lambda: ResNetStage(0, 32), "`num_units` must be a positive int.*num_units=0"),
        (lambda: ResNetStage(1, 32, activation="no"), "`activation` must be one of 'post', 'pre'"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
