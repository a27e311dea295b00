"""Images of a wrong shape have one error on every backend, however the model is called."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import to_numpy
from vit_keras.models import ResNet, VisionTransformer

pytestmark = pytest.mark.on("torch")

SIZES = {"hidden_size": 12, "num_layers": 1, "num_heads": 1, "mlp_dim": 16, "num_classes": 2}
LABELS = np.zeros((2, 2), "float32")
CALLS = {
    "call": lambda model, x: model(x),
    "named": lambda model, x: model(inputs=x),
    "predict": lambda model, x: model.predict(x, verbose=0),
    "evaluate": lambda model, x: model.evaluate(x, LABELS[: len(x)], verbose=0),
    "fit": lambda model, x: model.fit(x, LABELS[: len(x)], verbose=0),
    "dataset": lambda model, x: model.fit(tf.data.Dataset.from_tensors((x, LABELS)), verbose=0),
}


def vit(channels=3, **arguments):
    model = VisionTransformer(8, 4, channels=channels, seed=0, **SIZES, **arguments)
    model.compile("sgd", "mse")
    return model


CASES = [(call, (2, 12, 8, 3)) for call in CALLS]
CASES += [("call", shape) for shape in ((2, 8, 8, 1), (2, 3, 8, 8), (2, 8, 8))]


@pytest.mark.parametrize(("call", "shape"), CASES)
def test_a_wrong_shape_is_named_beside_the_right_one(call, shape):
    model = vit()
    weights = model.get_weights()
    with pytest.raises(ValueError) as error:
        CALLS[call](model, np.zeros(shape, "float32"))
    message = str(error.value)
    assert "This model takes images of (B, 8, 8, 3)" in message
    assert f"Received: {shape}" in message
    for before, after in zip(weights, model.get_weights()):  # the model still works
        np.testing.assert_array_equal(before, after)


def test_grayscale_images_need_no_axis_of_channels(rng):
    model = vit(channels=1, head_bias=0.5)
    images = rng.normal(size=(2, 8, 8)).astype("float32")
    np.testing.assert_array_equal(*(to_numpy(model(x)) for x in (images, images[..., None])))


def test_a_resnet_takes_any_size_and_names_what_it_does_not_take():
    model = ResNet(None, (1,), 0.5, num_classes=None, channels=1, seed=0)
    assert model(np.zeros((1, 36, 20, 1), "float32")).shape == (1, 128)
    with pytest.raises(ValueError, match=r"images of \(B, \?, \?, 1\). Received: \(2, 9, 9, 3\)"):
        model(np.zeros((2, 9, 9, 3), "float32"))
