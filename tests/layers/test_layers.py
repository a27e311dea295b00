"""Layers against formulas in NumPy: attention, positions, masks and dropout."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.helpers import assert_close, randomize, to_numpy
from vit_keras import layers, models

TOKENS, GRID = (2, 6, 12), (2, 3)
IDS = np.array([[3, 9, 4, 9, 1], [2, 2, 5, 1, 1]])
KEYS = np.array([[1, 1, 1, 1, 0], [1, 0, 1, 1, 1]])
FLOAT64 = pytest.mark.on("tensorflow", "torch")  # JAX has no float64 by default


@pytest.mark.parametrize(
    ("arguments", "keys", "dtype", "rtol"),
    [
        ((), 4, "float32", 4e-6),  # from one sequence to another
        (("relative",), 7, "float32", 4e-6),
        (("rope2d", GRID), 7, "float32", 4e-6),
        pytest.param((), 7, "float64", 1e-13, marks=FLOAT64),
    ],
)
def test_attention_and_its_weights_equal_the_formula(rng, arguments, keys, dtype, rtol):
    attention = layers.MultiHeadDotProductAttention
    layer = attention(3, 0.0, *arguments, dtype=dtype, name="attention")
    q, kv = rng.normal(size=(2, 7, 12)), rng.normal(size=(2, keys, 12))
    inputs = (q,) if keys == 7 else (q, kv)
    layer(*inputs)
    randomize(layer, rng, scale=0.4)
    weights = {w.path: to_numpy(w.value).astype("float64") for w in layer.weights}
    turn = (lambda x: reference.rotary(x, GRID, True)) if "rope2d" in arguments else lambda x: x
    expected, maps = reference.attention(q, inputs[-1], weights, "attention", turn)
    output, shares = layer(*inputs, return_attention_weights=True)
    assert_close(layer(*inputs), expected, rtol)
    assert_close(output, expected, rtol)
    assert_close(shares, maps, rtol)


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
    allowed = KEYS[:, None, None].astype(bool) & (np.tri(5, dtype=bool) if causal else True)
    logits = np.where(allowed, query @ key.swapaxes(2, 3) / 2, -np.inf)
    expected = reference.softmax(logits)
    assert_close(weights, expected)
    mixed = np.einsum("bhnk,hkd->bnd", expected @ value, to_numpy(layer.out.kernel))
    assert_close(result, mixed + to_numpy(layer.out.bias), rtol=1e-5)
    without_weights = to_numpy(layer(x, attention_mask=mask))
    np.testing.assert_array_equal(without_weights, to_numpy(result))


@pytest.mark.once
def test_attention_maps_of_a_text_tower_show_its_mask(rng):
    text = randomize(models.TextTransformer(10, 6, 12, 2, 3, 8, attention_mask=True), rng)
    maps = to_numpy(models.attention_maps(text)([IDS, KEYS]))
    assert maps.shape == (2, 2, 3, 5, 5)
    assert_close(maps.sum(-1), np.ones((2, 2, 3, 5)))
    hidden = ~(np.tri(5, dtype=bool) & KEYS[:, None].astype(bool))
    assert not maps.transpose(0, 3, 4, 1, 2)[hidden].any()
    assert keras.Model(text.inputs, text.get_layer("pooled").output)([IDS, KEYS]).shape == (2, 12)


@pytest.mark.parametrize("tokens", [6, 7])
def test_fixed_and_learned_positions_equal_loops(rng, tokens):
    x = rng.normal(size=(2, tokens, 8)).astype("float32")
    layer = layers.AddPositionEmbs2D(GRID, seed=1)
    layer.build(x.shape)
    initial = np.concatenate([np.ravel(to_numpy(w.value)) for w in layer.weights])
    assert 0.01 < initial.std() < 0.03
    tables = [to_numpy(w.value) for w in randomize(layer, rng).weights]
    assert [t.shape for t in tables] == [(3, 4), (2, 4), (1, 8)][: tokens - 4]
    assert_close(layer(x), x + reference.columns_and_rows(GRID, *tables), rtol=1e-6)
    expected = x + reference.sincos(GRID, 8, class_token=tokens == 7)
    assert_close(layers.AddSinCosPositions(GRID)(x), expected, rtol=1e-6)
    query = rng.normal(size=(2, tokens, 3, 8)).astype("float32")
    output = to_numpy(layers.RotaryPositions(GRID)(query))
    for head in range(3):
        expected = reference.rotary(query[:, :, head], GRID, class_token=tokens == 7)
        assert_close(output[:, :, head], expected, rtol=1e-6)


def test_dropout_is_where_the_paper_puts_it():
    """With all weights zero but the output biases, only dropped biases differ from z + b."""
    block = layers.EncoderBlock(3, 10, dropout_rate=0.5)
    block.build(TOKENS)
    kernel, x = block.mlp.dense_1.kernel, np.zeros((64, 6, 12), "float32")
    for bias in (block.mlp.dense_1.bias, block.attention.out.bias):
        bias.assign(np.ones(12))
        values, counts = np.unique(to_numpy(block(x, training=True)).round(4), return_counts=True)
        assert_close(values, [0, 2])  # dropped, or kept and doubled
        assert 0.45 < counts[0] / counts.sum() < 0.55
        bias.assign(np.zeros(12))
        kernel.assign(np.zeros(kernel.shape))


def test_stochastic_depth_drops_whole_branches_and_keeps_their_mean():
    block = layers.EncoderBlock(3, 10, stochastic_depth_rate=0.25)
    block.build(TOKENS)
    for kernel in (block.mlp.dense_1.kernel, block.attention.out.kernel):
        kernel.assign(np.zeros(kernel.shape))
    block.mlp.dense_1.bias.assign(np.ones(12))
    y = to_numpy(block(np.zeros((4000, 2, 12), "float32"), training=True))
    assert (y == y[:, :1, :1]).all()  # one draw an image
    assert_close(np.unique(y), [0, 1 / 0.75])
    assert abs(y.mean() - 1) < 0.04
