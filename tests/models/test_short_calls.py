"""On torch a model calls its layers without Keras' work around each call, to the same bits."""

import keras
import numpy as np
import pytest

from tests.helpers import randomise, to_numpy
from vit_keras.models import VisionTransformer, add_lora

pytestmark = pytest.mark.on("torch")


def make(**arguments):
    sizes = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24, "num_classes": 3}
    model = VisionTransformer(8, 4, **sizes, **arguments, seed=1)
    return randomise(model, np.random.default_rng(0))


@pytest.fixture
def images(rng):
    return keras.ops.convert_to_tensor(rng.normal(size=(2, 8, 8, 3)).astype("float32"))


def by_keras(model, images, **kwargs):
    """What `model` computes where Keras calls all layers: a hook on one of them needs that."""
    called = []
    hook = model.layers[-1].register_forward_hook(lambda layer, *_: called.append(layer.name))
    try:
        return to_numpy(model(images, **kwargs))
    finally:
        hook.remove()
        assert called == [model.layers[-1].name]


def with_seeds(model):
    """Sets the seeds of all dropouts anew."""
    for variable in model.non_trainable_variables:
        variable.assign(keras.random.SeedGenerator(7).state.value)
    return model


ARGUMENTS = {
    "paper": {},
    "gap": {"classifier": "gap", "representation_size": 5},
    "map": {"classifier": "map"},
    "registers": {"num_registers": 2, "layer_scale": 0.3, "pre_norm": True},
    "rope": {"rope": {"base": 100.0}, "qkv_bias": "qv", "mlp": "swiglu"},
    "distilled": {"classifier": "distilled"},
    "float64": {"dtype": "float64"},
    "mixed": {"dtype": "mixed_bfloat16"},
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_outputs_have_the_bits_of_keras_calls(arguments, images):
    model = make(**arguments)
    first = to_numpy(model(images))
    np.testing.assert_array_equal(first, by_keras(model, images))
    np.testing.assert_array_equal(first, to_numpy(model(images)))
    np.testing.assert_array_equal(first, to_numpy(model(to_numpy(images))))


@pytest.mark.parametrize("rates", [{"dropout_rate": 0.3}, {"attention_dropout_rate": 0.3}], ids=str)
def test_training_drops_as_by_keras(rates, images):
    model = make(**rates, stochastic_depth_rate=0.4)
    dropped = to_numpy(with_seeds(model)(images, training=True))
    expected = by_keras(with_seeds(model), images, training=True)
    np.testing.assert_array_equal(dropped, expected)
    assert not np.array_equal(dropped, to_numpy(model(images)))


def test_a_model_around_says_whether_it_trains(images):
    model = make(dropout_rate=0.3)

    class Around(keras.layers.Layer):
        def call(self, x):  # takes no `training`, so that Keras hands it on
            return model(x)

    inner = to_numpy(with_seeds(model)(images, training=True))
    outer = to_numpy(_call_after(model, Around(), images))
    np.testing.assert_array_equal(outer, inner)


def _call_after(model, layer, images):
    inputs = keras.Input((8, 8, 3))
    around = keras.Model(inputs, layer(inputs))
    with_seeds(model)
    return around(images, training=True)


def test_changes_of_weights_are_seen_however_they_are_made(images):
    model = make()
    before = to_numpy(model(images))
    kernel = model.get_layer("encoderblock_1").mlp.dense_0.kernel
    kernel.value.data.mul_(2.0)
    after = to_numpy(model(images))
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_array_equal(after, by_keras(model, images))
    kernel.value.data = kernel.value.data.clone() / 2
    np.testing.assert_array_equal(to_numpy(model(images)), before)


def test_adapters_count(images):
    model = make()
    before = to_numpy(model(images))
    add_lora(model, 2, seed=0)
    for layer in (model.get_layer(f"encoderblock_{i}").attention.query for i in range(2)):
        layer.lora_kernel_b.assign(np.ones(layer.lora_kernel_b.shape))
    adapted = to_numpy(model(images))
    assert np.abs(adapted - before).max() > 1e-3
    np.testing.assert_array_equal(adapted, by_keras(model, images))


def test_quantized_layers_count(images):
    model = make()
    before = to_numpy(model(images))
    model.quantize("int8")
    quantized = to_numpy(model(images))
    assert 0 < np.abs(quantized - before).max() < 0.5
    np.testing.assert_array_equal(quantized, by_keras(model, images))


def test_a_regularizer_of_activations_counts(images):
    model = make()
    model(images)
    model.get_layer("encoderblock_0").mlp.dense_1.activity_regularizer = keras.regularizers.L2(1.0)
    model(images)
    assert len(model.losses) == 1 and float(model.losses[0]) > 0
