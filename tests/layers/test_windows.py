"""Attention within windows against masks over all tokens."""

import numpy as np
import pytest
from keras import ops

from tests.helpers import assert_close, randomize, spread, to_numpy
from tests.layers import test_harness
from tests.layers.test_harness import BLOCK, GRID, MLP, TOKENS, Case
from vit_keras.layers import EncoderBlock, MultiHeadDotProductAttention


def attention(rng, grid, prefix, dtype=None, **options):
    """A layer with random weights for the patches of a grid, and tokens."""
    layer = MultiHeadDotProductAttention(3, grid=grid, options=options, dtype=dtype, name="layer")
    x = rng.normal(size=(2, prefix + grid[0] * grid[1], 12)).astype("float32")
    layer.build(x.shape)
    return randomize(layer, rng, scale=0.5), x


def compare_with_mask(rng, grid, size, prefix, **options):
    """Where windows reach over the grid, tokens of zeros, which give the biases, fill it."""
    layer, x = attention(rng, grid, prefix, window_size=size, **options)
    filled = tuple(-(-count // side) * side for count, side in zip(grid, size))
    whole, _ = attention(rng, filled, prefix, **options)
    whole.set_weights(layer.get_weights())
    row, column = np.indices(filled)
    number = (row // size[0] * filled[1] + column // size[1]).ravel()
    window = np.concatenate([np.full(prefix, -1), number])
    is_there = np.append(np.ones(prefix, bool), (row < grid[0]) & (column < grid[1]))
    tokens = np.zeros((2, len(window), 12), "float32")
    tokens[:, is_there] = x
    of_prefix = window == -1
    mask = (window == window[:, None]) | of_prefix | (of_prefix[:, None] & is_there)
    mask = ops.convert_to_tensor(np.stack([mask] * 2))
    expected = to_numpy(whole(tokens, attention_mask=mask))[:, is_there]
    assert_close(layer(x), expected)


@spread(  # windows that divide the grid, and that reach over it
    qkv_bias=["all", "qv", "none"], prefix=[0, 3], windows=[((4, 6), (2, 3)), ((3, 5), (2, 2))]
)
def test_windows_equal_attention_with_a_mask(rng, windows, prefix, qkv_bias):
    compare_with_mask(rng, *windows, prefix, qkv_bias=qkv_bias)


@pytest.mark.parametrize(
    ("prefix", "options"),
    [(0, {"qk_norm": True, "attention_norm": True, "rope": {}}), (2, {"rope": {"mixed": True}})],
)
def test_options_equal_attention_with_a_mask(rng, prefix, options):
    compare_with_mask(rng, (4, 6), (2, 3), prefix, **options)


WINDOWED = {**BLOCK, "grid": GRID}
PROJECTIONS = 4 * 6 * 12 * 12
CASES = {
    # Two windows of 4 patches stand for 6 patches: 8 queries and 4 keys each.
    "padded": Case(
        {**WINDOWED, **test_harness.RATES, "options": {"window_size": 2}},
        *(TOKENS, TOKENS, 16, PROJECTIONS + 2 * 8 * 4 * 12 + MLP),
        seeds=6,
    ),
    # Two tokens see all 6 tokens; two windows of 2 patches see themselves and the two tokens.
    "prefix": Case(
        {**BLOCK, "grid": (2, 2), "options": {"window_size": (1, 2)}},
        *(TOKENS, TOKENS, 16, PROJECTIONS + 2 * (2 * 6 + 2 * 2 * 4) * 12 + MLP),
    ),
}


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")
def test_a_block_keeps_the_contract_of_keras():
    test_harness.check_contract(EncoderBlock, CASES["padded"])


@pytest.mark.once
@pytest.mark.parametrize("name", CASES)
def test_blocks_cost_what_was_counted_by_hand(name):
    test_harness.check_cost(EncoderBlock, CASES[name])
