"""On torch, steps with `jit_compile=True` compile the model to a function with the same results."""

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomize
from vit_keras.models import VisionTransformer, add_lora

pytestmark = pytest.mark.on("torch")
SIZES = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24, "num_classes": 3}
RATES = {"dropout_rate": 0.1, "attention_dropout_rate": 0.2, "stochastic_depth_rate": 0.4}
CASES = {
    "drops": RATES,
    "paper": {},
    "rope": {"rope": {"base": 100.0}, "mlp": "swiglu", "qk_norm": True, "layer_scale": 0.1},
    "relative": {"position_embedding": "relative_2d", "classifier": "map"},
    "again": {"rematerialize": True, **RATES},
    "patches": {"patch_keep_rate": 0.5},
    "both": {"patch_keep_rate": 0.5, "rematerialize": True},
    "no chain": {"patch_keep_rate": 0.5, "classifier": "distilled"},
    "mixed": {"dtype": "mixed_bfloat16"},
}


def make(**arguments):
    keras.utils.set_random_seed(0)  # the seed of Keras' own dropout after the embedding
    model = VisionTransformer(8, 4, **SIZES, **arguments, seed=1)
    return randomize(model, np.random.default_rng(0))


def compiled(model, jit_compile):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), loss, jit_compile=jit_compile)
    return model


def trained(model, jit_compile, images):
    """What `predict`, `fit`, `evaluate` and `predict` return, one after another."""
    compiled(model, jit_compile)
    results = [model.predict(images, verbose=0)]
    labels = np.arange(len(images)) % 3
    history = model.fit(images, labels, batch_size=2, epochs=2, shuffle=False, verbose=0)
    results += [history.history["loss"], model.evaluate(images, labels, verbose=0)]
    return [*results, model.predict(images, verbose=0)]


@pytest.mark.nightly
@pytest.mark.parametrize("arguments", CASES.values(), ids=CASES)
def test_compiled_steps_have_the_results_of_layers(arguments, rng):
    images = rng.normal(size=(4, 8, 8, 3)).astype("float32")
    rtol = 0.05 if "dtype" in arguments else 4e-6
    expected = trained(make(**arguments), False, images)
    for result, other in zip(trained(make(**arguments), True, images), expected, strict=True):
        assert_close(result, other, rtol)


@pytest.mark.nightly
def test_frozen_and_adapted_weights_train_alike(rng):
    images = rng.normal(size=(4, 8, 8, 3)).astype("float32")
    results = []
    for jit_compile in (False, True):
        model = add_lora(make(), rank=2, seed=0)
        results.append(trained(model, jit_compile, images))
    for result, other in zip(*results, strict=True):
        assert_close(result, other, rtol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("rematerialize", [False, True])
def test_many_sizes_of_batches_are_compiled(rematerialize, rng):
    """torch refuses to compile one code for more than eight kinds of inputs."""
    arguments = {**SIZES, "hidden_size": 4, "num_layers": 1, "mlp_dim": 4}
    model = VisionTransformer(8, 4, **arguments, rematerialize=rematerialize, seed=1)
    compiled(model, True)
    for count in range(1, 11):
        images = rng.normal(size=(count, 8, 8, 3)).astype("float32")
        model.train_on_batch(images, np.zeros(count))
        expected = keras.ops.convert_to_numpy(model(images, training=False))
        assert_close(model.predict(images, verbose=0), expected, rtol=1e-5)


@pytest.mark.nightly
def test_several_outputs_keep_their_structure(rng):
    images, model = rng.normal(size=(4, 8, 8, 3)).astype("float32"), make()
    outputs = {"logits": model.output, "tokens": model.get_layer("encoder_norm").output}
    both = type(model)(model.input, outputs)
    expected = both.predict(images, verbose=0)
    results = compiled(both, True).predict(images, verbose=0)
    assert results.keys() == outputs.keys()
    for name in outputs:
        assert_close(results[name], expected[name])


def test_layers_that_change_their_weights_go_on_changing_them(rng):
    images = rng.normal(size=(4, 8, 8, 3)).astype("float32")
    averages = []
    for jit_compile in (False, True):
        backbone = make()
        normal = keras.layers.BatchNormalization(momentum=0.5)
        model = type(backbone)(backbone.input, normal(backbone.output))
        compiled(model, jit_compile)
        model.fit(images, np.array([0, 1, 2, 0]), epochs=2, verbose=0)
        averages.append(keras.ops.convert_to_numpy(normal.moving_mean))
    assert np.abs(averages[0]).max() > 0.1
    assert_close(*averages)
