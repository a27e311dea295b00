"""`compile` refuses what reads probabilities from logits, or logits from probabilities."""

import functools

import keras
import numpy as np
import pytest

from tests.helpers import randomize, to_numpy
from vit_keras import training
from vit_keras.models import VisionTransformer

L, M = keras.losses, keras.metrics
SIZES = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "mlp_dim": 8, "num_classes": 4}
LOSSES = [  # they read probabilities
    *("sparse_categorical_crossentropy", "CategoricalCrossentropy", "bce", "KLD", "dice"),
    L.binary_focal_crossentropy,
    L.SparseCategoricalCrossentropy(ignore_class=3),
    functools.partial(L.binary_crossentropy, label_smoothing=0.1),
]
METRICS = {  # and the argument for logits that the message names
    "binary_accuracy": "threshold=0.0",
    "AUC": "from_logits=True",
    M.categorical_crossentropy: "from_logits=True",
    M.Recall(thresholds=[0.3, 0.5]): "thresholds=0.0",
    M.BinaryIoU(): "threshold=0.0",
    M.F1Score(threshold=0.5): None,
    M.PrecisionAtRecall(0.5): None,
}


def build(**options):
    return VisionTransformer(8, 4, **{**SIZES, **options})


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
    for metric, remedy in METRICS.items():
        with pytest.raises(ValueError, match=f"`{argument}` must read logits") as caught:
            compiled(logits, loss="mse", **{argument: ["accuracy", metric]})
        assert str(caught.value).endswith(f", or give {remedy}" if remedy else '"softmax"')
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
        with pytest.raises(ValueError, match="`loss` must read prob.*classifier_activation=None"):
            compiled(softmax, loss=loss)
    focal = L.CategoricalFocalCrossentropy(from_logits=True)
    for reads_logits in (focal, training.SigmoidCrossentropy()):
        with pytest.raises(ValueError, match="`loss` must read probabilities.*reads logits"):
            compiled(softmax, loss=[reads_logits])
    with pytest.raises(ValueError, match="`metrics` must read probabilities.*AUC"):
        compiled(softmax, loss="mse", metrics=[M.AUC(from_logits=True)])
