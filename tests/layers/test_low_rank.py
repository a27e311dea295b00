"""Low-rank adapters of single dense layers, against their formula."""

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy
from vit_keras.layers.base import Dense, HeadsDense

RANK, ALPHA = 2, 5.0
# The layer, the shape of its input, and the equation of its product.
CASES = {
    "Dense": (lambda: Dense(7, "tanh"), (3, 4, 6), "...d,df->...f"),
    "query": (
        lambda: HeadsDense("bnd,dhk->bnhk", (None, 3, 2), bias_axes="hk"),
        (3, 4, 6),
        "bnd,dhk->bnhk",
    ),
    "out": (
        lambda: HeadsDense("bnhk,hkd->bnd", (None, 6), bias_axes="d"),
        (3, 4, 3, 2),
        "bnhk,hkd->bnd",
    ),
}


def adapted(name, rng):
    """A model of one layer with random adapters, and the weights of the layer."""
    make, shape, _ = CASES[name]
    inputs = keras.Input(shape[1:])
    layer = make()
    model = keras.Model(inputs, layer(inputs))
    layer.enable_lora(RANK, lora_alpha=ALPHA)
    randomize(model, rng)
    return model, layer


@pytest.mark.parametrize("name", CASES)
def test_a_product_has_rank_r_over_all_inputs_and_outputs(rng, name, tmp_path):
    model, layer = adapted(name, rng)
    _, shape, equation = CASES[name]
    x = rng.normal(size=shape).astype("float32")
    kernel, bias, a, b = map(to_numpy, layer.weights)
    size = int(np.prod(shape[2:]))
    product = a.reshape(size, RANK) @ b.reshape(RANK, -1)
    assert np.linalg.matrix_rank(product) == RANK and product.size == kernel.size
    whole = kernel + ALPHA / RANK * product.reshape(kernel.shape)
    expected = np.einsum(equation, x, whole) + bias
    expected = np.tanh(expected) if name == "Dense" else expected
    assert_close(model(x), expected)
    assert [v.name for v in layer.trainable_variables] == ["bias", "lora_kernel_a", "lora_kernel_b"]

    model.save_weights(tmp_path / "sum.weights.h5")  # Keras writes the sum
    first = to_numpy(layer.lora_kernel_a).copy()
    model.load_weights(tmp_path / "sum.weights.h5")
    np.testing.assert_array_equal(to_numpy(layer.lora_kernel_a), first)  # which can still learn
    assert not to_numpy(layer.lora_kernel_b).any()
    assert_close(model(x), expected)
