"""Position embeddings against loops in NumPy, and what their logits may depend on."""

import numpy as np
import pytest

from tests import reference
from tests.helpers import assert_close, randomize, to_numpy
from vit_keras import layers

GRID = (2, 3)


@pytest.mark.parametrize("tokens", [6, 7])
def test_columns_and_rows_are_concatenated(rng, tokens):
    x = rng.normal(size=(2, tokens, 8)).astype("float32")
    layer = layers.AddPositionEmbs2D(GRID, seed=1)
    layer.build(x.shape)
    initial = [to_numpy(w.value) for w in layer.weights]
    randomize(layer, rng)
    tables = [to_numpy(w.value) for w in layer.weights]
    assert [t.shape for t in tables] == [(3, 4), (2, 4), (1, 8)][: tokens - 4]
    expected = x + reference.columns_and_rows(GRID, *tables)
    assert_close(layer(x), expected, rtol=1e-6)
    assert 0.01 < np.std(np.concatenate([t.ravel() for t in initial])) < 0.03


@pytest.mark.parametrize("tokens", [6, 7])
def test_sines_and_cosines_are_added_to_patches(rng, tokens):
    x = rng.normal(size=(2, tokens, 8)).astype("float32")
    layer = layers.AddSinCosPositions(GRID)
    expected = x + reference.sincos(GRID, 8, class_token=tokens == 7)
    assert_close(layer(x), expected, rtol=1e-6)
    assert layer.weights == []


@pytest.mark.parametrize("tokens", [6, 7])
def test_queries_are_rotated_by_row_and_column(rng, tokens):
    x = rng.normal(size=(2, tokens, 3, 8)).astype("float32")
    output = to_numpy(layers.RotaryPositions(GRID)(x))
    for head in range(3):
        expected = reference.rotary(x[:, :, head], GRID, class_token=tokens == 7)
        assert_close(output[:, :, head], expected, rtol=1e-6)
    if tokens == 7:
        np.testing.assert_array_equal(output[:, 0], x[:, 0])


def test_relative_logits_belong_to_offsets(rng):
    query = rng.normal(size=(2, 5, 3, 4)).astype("float32")
    layer = layers.RelativeLogits()
    layer.build(query.shape)
    randomize(layer, rng)
    output = to_numpy(layer(query))
    table = to_numpy(layer.embedding.value)
    for head in range(3):
        expected = reference.relative_logits(query[:, :, head], table)
        assert_close(output[:, head], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "turn"),
    [(("relative",), lambda x: x), (("rope2d", GRID), lambda x: reference.rotary(x, GRID, True))],
)
def test_attention_with_positions_equals_the_formula(rng, arguments, turn):
    layer = layers.MultiHeadDotProductAttention(3, 0.0, *arguments, name="attention")
    x = rng.normal(size=(2, 7, 12)).astype("float32")
    layer(x)
    randomize(layer, rng)
    weights = {w.path: to_numpy(w.value).astype("float64") for w in layer.weights}
    expected, maps = reference.attention(x, x, weights, "attention", turn)
    output, attention = layer(x, return_attention_weights=True)
    assert_close(layer(x), expected)
    assert_close(output, expected)
    assert_close(attention, maps)
