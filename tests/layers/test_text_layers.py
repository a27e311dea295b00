"""Masks of attention and pooled tokens, against formulas in NumPy."""

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy
from vit_keras import layers, models

IDS = np.array([[3, 9, 4, 9, 1], [2, 2, 5, 1, 1]])
KEYS = np.array([[1, 1, 1, 1, 0], [1, 0, 1, 1, 1]])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_masked_attention_is_the_formula(rng, causal, rate):
    x = rng.normal(size=(2, 5, 12)).astype("float32")
    layer = layers.MultiHeadDotProductAttention(3, attention_dropout_rate=rate)
    layer.build(x.shape)
    for variable in layer.weights:
        variable.assign(rng.normal(size=variable.shape))
    mask = layers.TextMask(causal)(IDS, KEYS)
    result, weights = layer(x, attention_mask=mask, return_attention_weights=True)
    project = lambda dense: (
        np.einsum("bnd,dhk->bhnk", x, to_numpy(dense.kernel)) + (to_numpy(dense.bias)[:, None])
    )
    query, key, value = (project(dense) for dense in (layer.query, layer.key, layer.value))
    logits = query @ key.swapaxes(2, 3) / 2
    allowed = KEYS[:, None, None].astype(bool) & (np.tri(5, dtype=bool) if causal else True)
    exponents = np.exp(logits - logits.max(-1, keepdims=True)) * allowed
    expected = exponents / exponents.sum(-1, keepdims=True)
    assert_close(weights, expected)
    mixed = np.einsum("bhnk,hkd->bnd", expected @ value, to_numpy(layer.out.kernel))
    assert_close(result, mixed + to_numpy(layer.out.bias), rtol=1e-5)
    np.testing.assert_array_equal(
        to_numpy(layer(x, attention_mask=mask)), to_numpy(result)
    )  # without the weights


@pytest.mark.once
def test_attention_maps_of_a_text_tower_show_its_mask(rng):
    text = randomize(models.TextTransformer(10, 6, 12, 2, 3, 8, attention_mask=True), rng)
    maps = to_numpy(models.attention_maps(text)([IDS, KEYS]))
    assert maps.shape == (2, 2, 3, 5, 5)
    assert_close(maps.sum(-1), np.ones((2, 2, 3, 5)))
    hidden = ~(np.tri(5, dtype=bool) & KEYS[:, None].astype(bool))
    assert not maps.transpose(0, 3, 4, 1, 2)[hidden].any()
    assert keras.Model(text.inputs, text.get_layer("pooled").output)([IDS, KEYS]).shape == (2, 12)
