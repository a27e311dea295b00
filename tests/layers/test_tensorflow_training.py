"""The gradients written for TensorFlow, against differences of the formulas in float64."""

import numpy as np
import pytest

from tests import reference
from tests.helpers import assert_close
from vit_keras.layers import base
from vit_keras.layers.common import LayerNormalization

pytestmark = pytest.mark.on("tensorflow")
X = np.linspace(-6, 6, 97)


def by_differences(kind, step=1e-5):
    return (reference.gelu(X + step, kind) - reference.gelu(X - step, kind)) / (2 * step)


def value_and_gradient(kind, training, dtype="float32"):
    import tensorflow as tf

    layer = base.Dense(len(X), base.GELUS[kind], kernel_initializer="identity", dtype=dtype)
    rows, upstream = tf.constant(X[None], "float32"), tf.constant(1 + X[None] ** 2, "float32")
    with tf.GradientTape() as tape:
        tape.watch(rows)
        y = layer(rows, training=training)
    return y[0], tape.gradient(y, rows, output_gradients=tf.cast(upstream, y.dtype))[0]


@pytest.mark.parametrize("kind", base.GELUS)
def test_gelu_and_its_gradient_equal_the_formulas(kind):
    y, gradient = value_and_gradient(kind, training=True)
    assert_close(y, reference.gelu(X, kind), rtol=1e-6)
    assert_close(gradient, (1 + X**2) * by_differences(kind), rtol=1e-5)


@pytest.mark.parametrize("kind", base.GELUS)
@pytest.mark.parametrize("dtype", ("mixed_bfloat16", "mixed_float16"))
def test_in_half_precision_the_gradient_is_as_close_as_without_the_kernel(kind, dtype):
    expected = (1 + X**2) * by_differences(kind)
    errors = [
        np.abs(value_and_gradient(kind, training, dtype)[1].numpy() - expected).max()
        for training in (True, False)
    ]
    assert errors[0] <= 1.5 * errors[1]


def normalized(x, gamma=1.0, beta=0.0, epsilon=1e-3):
    return reference.layer_norm(x, {"norm/gamma": gamma, "norm/beta": beta}, "norm", epsilon)


def test_layer_norm_and_its_gradients_equal_the_formulas(rng):
    import tensorflow as tf

    values = [rng.normal(3, 2, (2, 5, 7)), *rng.normal(1, 0.3, (2, 7))]  # x, gamma and beta
    upstream = rng.normal(size=(2, 5, 7))
    layer = LayerNormalization(epsilon=1e-3, name="norm")
    layer.build((None, 5, 7))
    layer.set_weights(values[1:])
    x = tf.constant(values[0], "float32")
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
    sources = [x, layer.gamma.value, layer.beta.value]
    gradients = tape.gradient(y, sources, tf.constant(upstream, "float32"))
    assert_close(y, normalized(*values), rtol=2e-6)
    for place, gradient in enumerate(gradients):
        ways = np.zeros((2, *values[place].shape)) + rng.normal(size=values[place].shape)
        ways *= np.reshape([1e-5, -1e-5], (2,) + (1,) * values[place].ndim)
        ahead, behind = (
            normalized(*values[:place], values[place] + way, *values[place + 1 :]) for way in ways
        )
        expected = np.sum(upstream * (ahead - behind)) / 2e-5
        np.testing.assert_allclose(np.sum(gradient * ways[0]) / 1e-5, expected, atol=1e-4)


def test_second_derivatives_of_layer_norm_equal_those_of_the_formula_in_prediction(rng):
    import tensorflow as tf

    layer, x = LayerNormalization(epsilon=1e-3), tf.constant(rng.normal(3, 2, (2, 5, 7)), "float32")
    layer.build(x.shape)
    layer.set_weights(rng.normal(1, 0.3, (2, 7)))
    results = []
    for training in (True, False):
        with tf.GradientTape() as outer, tf.GradientTape() as inner:
            outer.watch(x)
            inner.watch(x)
            y = tf.sin(layer(x, training=training))
            penalty = tf.square(inner.gradient(y, x))
        results.append(outer.gradient(penalty, x))
    assert_close(*results, rtol=1e-5)
