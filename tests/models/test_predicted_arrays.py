"""`predict` does what Keras' loop does; wrong images, and losses of wrong outputs, are named."""

import functools
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import assert_close, randomize, to_numpy
from vit_keras import training
from vit_keras.models import Preprocessing, VisionTransformer
from vit_keras.retrieval import open_embedder

on_torch = pytest.mark.on("torch")


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


@on_torch
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


@on_torch
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


@on_torch
def test_not_all_pictures_are_read_to_look_for_nan(model, rng):
    many = model.preprocessing.normalize(255 * rng.random((20, 8, 8, 3)))
    expected = model.predict(many, verbose=0)
    many[1], expected[1] = np.nan, np.nan
    np.testing.assert_allclose(model.predict(many, verbose=0), expected, rtol=1e-5)


SIZES = {"hidden_size": 12, "num_layers": 1, "num_heads": 1, "mlp_dim": 16, "num_classes": 2}
LABELS = np.zeros((2, 2), "float32")
CALLS = {
    "predict": lambda model, x: model.predict(x, verbose=0),
    "evaluate": lambda model, x: model.evaluate(x, LABELS[: len(x)], verbose=0),
    "fit": lambda model, x: model.fit(x, LABELS[: len(x)], verbose=0),
    "dataset": lambda model, x: model.fit(tf.data.Dataset.from_tensors((x, LABELS)), verbose=0),
}
CASES = [(call, (2, 12, 8, 3)) for call in CALLS]
CASES += [("predict", shape) for shape in ((2, 8, 8, 1), (2, 3, 8, 8), (2, 8, 8))]


@on_torch
@pytest.mark.parametrize(("call", "shape"), CASES)
def test_a_wrong_shape_is_named_beside_the_right_one(call, shape):
    model = VisionTransformer(8, 4, **SIZES)
    model.compile("sgd", "mse")
    weights = model.get_weights()
    with pytest.raises(ValueError) as error:
        CALLS[call](model, np.zeros(shape, "float32"))
    message = str(error.value)
    assert "This model takes images of shape (None, 8, 8, 3)" in message
    assert f"Received: {shape}" in message
    for before, after in zip(weights, model.get_weights()):  # the model still works
        np.testing.assert_array_equal(before, after)


L, M = keras.losses, keras.metrics
FEW = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "mlp_dim": 8, "num_classes": 4}
LOSSES = [  # they read probabilities
    *("sparse_categorical_crossentropy", "CategoricalCrossentropy", "bce", "KLD", "dice"),
    L.binary_focal_crossentropy,
    L.SparseCategoricalCrossentropy(ignore_class=3),
    functools.partial(L.binary_crossentropy, label_smoothing=0.1),
]
METRICS = ["binary_accuracy", "AUC", M.categorical_crossentropy, M.PrecisionAtRecall(0.5)]
METRICS.append(M.Recall(thresholds=[0.3, 0.5]))


def build(**options):
    return VisionTransformer(8, 4, **{**FEW, **options})


def compiled(model, **arguments):
    model.compile("sgd", **arguments)
    return model


@pytest.fixture(scope="module")
def logits():
    return build()


@pytest.fixture(scope="module")
def softmax():
    return build(classifier_activation="softmax")


@pytest.mark.once
def test_losses_of_probabilities_are_refused_for_logits(logits, softmax):
    for loss in [*LOSSES, ["bce"], {"head": "bce"}]:
        with pytest.raises(ValueError, match=r"`loss` must read logits.*Received: .*"):
            compiled(logits, loss=loss)
        compiled(softmax, loss=loss)


@pytest.mark.once
@pytest.mark.parametrize("argument", ["metrics", "weighted_metrics"])
def test_metrics_of_probabilities_are_refused_for_logits(logits, softmax, argument):
    for metric in METRICS:
        with pytest.raises(ValueError, match=f"`{argument}` must read logits.*Set its `from"):
            compiled(logits, loss="mse", **{argument: ["accuracy", metric]})
        compiled(softmax, loss="mse", **{argument: [metric]})


def test_logits_from_probabilities_are_refused_where_keras_reads_them_wrongly(rng, softmax):
    """TensorFlow finds the logits before a softmax, in these losses; the reference is NumPy's."""
    loss = L.SparseCategoricalCrossentropy(from_logits=True)
    if keras.backend.backend() == "tensorflow":
        model, classes = randomize(build(classifier_activation="softmax"), rng), np.array([2, 1])
        images = rng.normal(size=(2, 8, 8, 3)).astype("float32")
        probabilities = to_numpy(model(images))[np.arange(2), classes]
        measured = compiled(model, loss=loss).evaluate(images, classes, verbose=0)
        assert measured == pytest.approx(-np.log(probabilities).mean(), rel=1e-5)
    else:
        with pytest.raises(ValueError, match="`loss` must read prob.*or None for logits"):
            compiled(softmax, loss=loss)
    focal = L.CategoricalFocalCrossentropy(from_logits=True)
    for reads_logits in (focal, training.SigmoidCrossentropy()):
        with pytest.raises(ValueError, match="`loss` must read probabilities.*reads logits"):
            compiled(softmax, loss=[reads_logits])
    with pytest.raises(ValueError, match="`metrics` must read probabilities.*AUC"):
        compiled(softmax, loss="mse", metrics=[M.AUC(from_logits=True)])
