"""Position embeddings against loops in NumPy, and what their logits may depend on."""

import re

import keras
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


def test_rotated_logits_depend_only_on_the_offset(rng):
    """With the same content everywhere, a pair of patches and the same pair moved agree."""
    content = rng.normal(size=(2, 8)).astype("float32")  # of a query and of a key
    query, key = (np.broadcast_to(c, (1, 20, 1, 8)) for c in content)
    layer = layers.RotaryPositions((4, 5))
    turned = (to_numpy(layer(x))[0, :, 0] for x in (query, key))
    logits = np.einsum("qd,kd->qk", *turned).reshape(4, 5, 4, 5)
    moved = logits[1:, 2:, 1:, 2:]
    assert_close(logits[:3, :3, :3, :3], moved, rtol=2e-6)
    assert np.ptp(logits) > 0.5 and np.ptp(logits[0, 0, :, 0]) > 0.1


def test_relative_logits_depend_only_on_the_offset(rng):
    query = np.broadcast_to(rng.normal(size=4).astype("float32"), (1, 6, 1, 4))
    layer = layers.RelativeLogits()
    layer.build(query.shape)
    randomize(layer, rng)
    logits = to_numpy(layer(query))[0, 0]
    assert_close(logits[:-2, :-2], logits[2:, 2:], rtol=1e-6)
    assert len(np.unique(logits.round(5))) == 11


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


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (layers.AddPositionEmbs2D(GRID), (1, 6, 7), r"two halves.*hidden_size=7"),
        (layers.AddSinCosPositions(GRID), (1, 5, 8), r"2x3 has 6 patches.*Received: 5 tokens"),
        (layers.AddSinCosPositions(GRID), (1, 6, 6), r"4 must divide `hidden_size`.*hidden_size=6"),
        (layers.RotaryPositions(GRID), (1, 6, 2, 6), r"4 must divide the size of a head.*: 6"),
        (layers.RelativeLogits(), (1, 1, 2, 8), r"at least two tokens; make `image_size` larger"),
    ],
)
def test_shapes_without_positions_are_named(layer, shape, message):
    with pytest.raises(ValueError, match=message):
        layer.build(shape)


def test_attention_names_what_it_cannot_place(rng):
    with pytest.raises(ValueError, match=r"`position_embedding` must be one of None, 'relative'"):
        layers.MultiHeadDotProductAttention(2, 0.0, "learned")
    with pytest.raises(ValueError, match="`grid` must be a positive int or a pair"):
        layers.MultiHeadDotProductAttention(2, 0.0, "rope2d")
    layer = layers.MultiHeadDotProductAttention(2, 0.0, "relative")
    with pytest.raises(ValueError, match=r"attends to itself.*\(1, 3, 8\).*\(1, 4, 8\)"):
        layer(keras.KerasTensor((1, 3, 8)), keras.KerasTensor((1, 4, 8)))


@pytest.mark.parametrize(
    ("layer", "built", "called"),
    [
        (layers.AddPositionEmbs(), (2, 7, 8), (2, 5, 8)),
        (layers.AddPositionEmbs2D(GRID), (2, 7, 8), (2, 6, 8)),
        (layers.AddSinCosPositions(GRID), (2, 6, 8), (2, 7, 8)),
        (layers.RelativeLogits(), (2, 7, 2, 4), (2, 6, 2, 4)),
        (layers.RotaryPositions(GRID), (2, 7, 2, 4), (2, 6, 2, 4)),
    ],
)
def test_another_number_of_tokens_is_named(layer, built, called):
    layer.build(built)
    sequence = re.escape(f"(B, {str(built[1:])[1:]}. Received: {called}")
    with pytest.raises(ValueError, match=f"{type(layer).__name__} '.*{sequence}.*with_image_size"):
        layer(np.zeros(called, "float32"))
