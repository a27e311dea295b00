"""`predict` of an array does what Keras' loop over batches does, in less time."""

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomise
from vit_keras.models import VisionTransformer


@pytest.fixture
def model():
    sizes = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24, "num_classes": 3}
    model = VisionTransformer(8, 4, **sizes, classifier="distilled", seed=1)
    return randomise(model, np.random.default_rng(0))


@pytest.fixture
def images(rng):
    return rng.normal(size=(5, 8, 8, 3)).astype("float32")


def by_keras(model, images, **kwargs):
    return keras.Model.predict(model, images, verbose=0, **kwargs)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_outputs_are_those_of_keras_loop(model, images, batch_size):
    images.setflags(write=False)
    outputs = model.predict(images, batch_size=batch_size, verbose=0)
    assert_close(outputs, by_keras(model, images, batch_size=batch_size), rtol=2e-6, strict=True)


def test_it_follows_weights_and_changes_of_the_model(model, images):
    first = model.predict(images, verbose=0)
    head = model.get_layer("head")
    head.kernel.assign(2 * head.kernel.value)
    changed = model.predict(images, verbose=0)
    assert_close(changed, by_keras(model, images), rtol=2e-6)
    model.compile("sgd", "mse")
    model.fit(images, np.zeros((5, 3)), verbose=0)
    trained = model.predict(images, verbose=0)
    assert_close(trained, by_keras(model, images), rtol=2e-6)
    assert min(np.abs(changed - first).max(), np.abs(trained - changed).max()) > 1e-3


def test_a_callback_predicts_during_training(model, images):
    seen = []

    class Predicts(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(self.model.predict(images, verbose=0))

    model.compile("sgd", "mse")
    model.fit(images, np.zeros((5, 3)), epochs=2, verbose=0, callbacks=[Predicts()])
    assert np.abs(seen[1] - seen[0]).max() > 1e-4
    assert_close(seen[1], by_keras(model, images), rtol=2e-6)


def test_a_models_own_step_counts(model, images):
    class Doubled(type(model)):
        def call(self, inputs, training=None):
            return {"twice": 2 * super().call(inputs, training=training)}

    class Stepped(type(model)):
        def predict_step(self, *arguments):
            outputs = super().predict_step(*arguments)
            if keras.backend.backend() == "jax":
                return 3 * outputs[0], outputs[1]
            return 3 * outputs

    expected = by_keras(model, images)
    twice = Doubled(model.input, model.output).predict(images, batch_size=2, verbose=0)
    assert_close(twice["twice"], 2 * expected, rtol=2e-6)
    outputs = Stepped(model.input, model.output).predict(images, batch_size=2, verbose=0)
    assert_close(outputs, 3 * expected, rtol=2e-6)


def test_eager_models_predict_eagerly(model, images):
    model.compile(run_eagerly=True)
    expected = by_keras(model, images)
    assert_close(model.predict(images, verbose=0), expected, rtol=2e-6)
