"""GELU's own gradients on TensorFlow, against differences of the formula in float64."""

import keras
import numpy as np
import pytest

from tests import reference
from vit_keras.layers import dense

pytestmark = pytest.mark.on("tensorflow")
X = np.linspace(-6, 6, 97)


def by_differences(kind, step=1e-5):
    return (reference.gelu(X + step, kind) - reference.gelu(X - step, kind)) / (2 * step)


def value_and_gradient(kind, training, dtype="float32"):
    import tensorflow as tf

    layer = dense.Dense(len(X), dense.GELUS[kind], kernel_initializer="identity", dtype=dtype)
    rows, upstream = tf.constant(X[None], "float32"), tf.constant(1 + X[None] ** 2, "float32")
    with tf.GradientTape() as tape:
        tape.watch(rows)
        y = layer(rows, training=training)
    return y[0], tape.gradient(y, rows, output_gradients=tf.cast(upstream, y.dtype))[0]


@pytest.mark.parametrize("kind", dense.GELUS)
def test_value_and_gradient_are_the_formulas(kind):
    y, gradient = value_and_gradient(kind, training=True)
    np.testing.assert_allclose(y, reference.gelu(X, kind), atol=1e-6)
    np.testing.assert_allclose(gradient, (1 + X**2) * by_differences(kind), atol=1e-4)


@pytest.mark.parametrize("kind", dense.GELUS)
@pytest.mark.parametrize("dtype", ("mixed_bfloat16", "mixed_float16"))
def test_in_half_precision_it_is_as_close_as_the_one_of_inference(kind, dtype):
    expected = (1 + X**2) * by_differences(kind)
    errors = [
        np.abs(value_and_gradient(kind, training, dtype)[1].numpy() - expected).max()
        for training in (True, False)
    ]
    assert errors[0] <= 1.5 * errors[1]


def test_another_activation_is_left_alone():
    layer = dense.Dense(3, keras.activations.relu, kernel_initializer="identity")
    np.testing.assert_array_equal(layer(np.array([[-1.0, 0.5, 2.0]]), training=True), [[0, 0.5, 2]])
