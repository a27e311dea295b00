"""Private names of Keras that calls of layers read: the graph of a model, scopes and tensors."""

import keras
import numpy as np
import pytest

from vit_keras import keras_internals


def test_a_chain_is_told_from_other_graphs():
    inputs = keras.Input((3,))
    dense, dropout, head = keras.layers.Dense(3), keras.layers.Dropout(0.5), keras.layers.Dense(2)
    hidden = dropout(dense(inputs))
    assert keras_internals.chain_of(keras.Model(inputs, head(hidden))) == [dense, dropout, head]
    added = keras.Model(inputs, head(keras.layers.add([hidden, inputs])))
    always = keras.Model(inputs, head(dropout(dense(inputs), training=True)))
    several = keras.Model(inputs, [hidden, head(hidden)])
    for model in (added, always, several):
        assert keras_internals.chain_of(model) == []


def test_scopes_and_calls_are_seen():
    assert not keras_internals.has_variable_scope() and not keras_internals.is_inside_call()
    seen = []

    class Looking(keras.layers.Layer):
        def call(self, x):
            seen.append((keras_internals.has_variable_scope(), keras_internals.is_inside_call()))
            return x

    Looking()(np.ones((1, 2), "float32"))
    Looking(dtype="mixed_bfloat16")(np.ones((1, 2), "float32"))
    keras.utils.clear_session()  # replaces the state that holds them
    with keras.StatelessScope():
        assert keras_internals.has_variable_scope()
    assert seen == [(False, True), (True, True)]


@pytest.mark.on("torch")
def test_tensors_of_weights_are_read_at_once():
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    kernel, bias = keras_internals.tensor_reader("kernel", "bias")(layer)
    assert kernel is layer.kernel.value and bias is layer.bias.value
    read = keras_internals.tensors_of([layer.kernel, layer.bias])
    assert read[0] is kernel and read[1] is bias
