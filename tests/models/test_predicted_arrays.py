"""`predict` of an array does what Keras' loop over batches does, in less time."""

import warnings

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomize
from vit_keras.models import Preprocessing, VisionTransformer
from vit_keras.retrieval import open_embedder


@pytest.fixture
def model():
    sizes = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24, "num_classes": 3}
    model = VisionTransformer(8, 4, **sizes, classifier="distilled", seed=1)
    return randomize(model, np.random.default_rng(0))


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


def test_a_models_own_step_counts(model, images):
    class Stepped(type(model)):
        def predict_step(self, *arguments):
            outputs = super().predict_step(*arguments)
            if keras.backend.backend() == "jax":
                return 3 * outputs[0], outputs[1]
            return 3 * outputs

    outputs = Stepped(model.input, model.output).predict(images, batch_size=2, verbose=0)
    assert_close(outputs, 3 * by_keras(model, images), rtol=2e-6)


def test_no_images_have_no_outputs(model, images):
    for verbose in (0, 1):
        outputs = model.predict(images[:0], verbose=verbose)
        np.testing.assert_array_equal(outputs, model.predict(images, verbose=0)[:0], strict=True)
    embedder = open_embedder(model)
    assert embedder.run(images[:0]).shape == (0, 16)
    model.compile("sgd", "mse")
    for learn in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="need at least one image. Received: none"):
            learn(images[:0], np.zeros((0, 3)))
    assert_close(model.predict(images, verbose=0), by_keras(model, images), rtol=2e-6)


UNPREPARED = {
    "0 to 1": lambda x: x,
    "0 to 255": lambda x: (255 * x).astype("uint8"),
    "0 to 6.55e\\+04": lambda x: (65535 * x).astype("uint16"),
}


@pytest.mark.on("torch")
@pytest.mark.parametrize("case", [*UNPREPARED])
def test_unprepared_pictures_are_warned_of(rng, model, case):
    pixels = rng.random((2, 8, 8, 3)).astype("float32")
    pixels[0, 0, 0, :2] = 0, 1
    given, message = UNPREPARED[case](pixels), f"Received: values from {case}. Prepare"
    for call in (lambda x: model.predict(x, verbose=0), open_embedder(model).run):
        with pytest.warns(UserWarning, match=message):
            call(given)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "This model takes")
        prepared = model.preprocessing.normalize(255 * pixels)
        for right in (prepared, 0 * prepared, rng.normal(size=(2, 8, 8, 3))):
            model.predict(right, verbose=0)
        model.preprocessing = Preprocessing(mean=(0.0,), std=(1.0,))
        model.predict(pixels, verbose=0)


@pytest.mark.on("torch")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: np.where(x > 1, np.nan, x), "Pixels must be finite"),
        (lambda x: [x[0], x[1, :5]], "must be real numbers in one array"),
        (lambda x: x.transpose(0, 3, 1, 2), "takes images of"),
        (lambda x: [], "takes images of"),
    ],
)
def test_faults_of_images_are_named(model, images, change, message):
    predict = lambda x: model.predict(x, verbose=0)
    for call in (predict, model.predict_on_batch, open_embedder(model).run):
        with pytest.raises(ValueError, match=message):
            call(change(images))
