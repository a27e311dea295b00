"""Attention within windows against formulas in NumPy, and against masks over all tokens."""

import itertools

import numpy as np
import pytest
from keras import ops

from tests import reference
from tests.helpers import assert_close, randomize, spread, weights_by_path
from tests.layers import test_harness
from tests.layers.test_harness import BLOCK, GRID, MLP, TOKENS, Case
from vit_keras.layers import EncoderBlock, MultiHeadDotProductAttention


def places(grid, size):
    """The patches of each window, row by row, and None beyond the grid."""
    (rows, columns), (height, width) = grid, size
    for top, left in itertools.product(range(0, rows, height), range(0, columns, width)):
        inside = itertools.product(range(top, top + height), range(left, left + width))
        yield [r * columns + c if r < rows and c < columns else None for r, c in inside]


def by_windows(x, weights, grid, size):
    """Loops over images, heads and windows; padding has the biases as its key and its value."""
    get = lambda name: weights.get(name, np.zeros(weights["query/kernel"].shape[1:]))
    project = lambda name: np.einsum("bnd,dhk->bhnk", x, get(f"{name}/kernel"))
    query, key, value = (
        project(name) + get(f"{name}/bias")[:, None] for name in ("query", "key", "value")
    )
    prefix, mixed = x.shape[1] - grid[0] * grid[1], np.zeros(query.shape)
    for b, h in itertools.product(range(len(x)), range(query.shape[1])):
        padding = get("key/bias")[h], get("value/bias")[h]
        everything = [(key[b, h, i], value[b, h, i]) for i in range(x.shape[1])]
        rows = [([i], everything) for i in range(prefix)]
        for window in places(grid, size):
            inside = [padding if i is None else everything[prefix + i] for i in window]
            queries = [prefix + i for i in window if i is not None]
            rows.append((queries, everything[:prefix] + inside))
        for queries, seen in rows:
            keys, values = map(np.stack, zip(*seen))
            logits = query[b, h, queries] @ keys.T / np.sqrt(keys.shape[1])
            mixed[b, h, queries] = reference.softmax(logits) @ values
    return np.einsum("bhnk,hkd->bnd", mixed, weights["out/kernel"]) + weights["out/bias"]


def attention(rng, grid, prefix, dtype=None, **options):
    """A layer with random weights for the patches of a grid, and tokens."""
    layer = MultiHeadDotProductAttention(3, grid=grid, options=options, dtype=dtype, name="layer")
    x = rng.normal(size=(2, prefix + grid[0] * grid[1], 12)).astype("float32")
    layer.build(x.shape)
    return randomize(layer, rng, scale=0.5), x


@spread(  # windows that divide the grid, and that reach over it
    qkv_bias=["all", "qv", "none"],
    prefix=[0, 3],
    windows=[((4, 6), (2, 3)), ((3, 5), (2, 2))],
)
def test_attention_equals_the_formula(rng, windows, prefix, qkv_bias):
    grid, size = windows
    layer, x = attention(rng, grid, prefix, window_size=size, qkv_bias=qkv_bias)
    weights = {path.removeprefix("layer/"): w for path, w in weights_by_path(layer).items()}
    expected = by_windows(x.astype("float64"), weights, grid, size)
    assert_close(layer(x), expected)


@pytest.mark.parametrize(
    ("prefix", "options"),
    [(0, {"qk_norm": True, "attention_norm": True, "rope": {}}), (2, {"rope": {"mixed": True}})],
)
def test_options_equal_attention_with_a_mask(rng, prefix, options):
    grid, size = (4, 6), (2, 3)
    layer, x = attention(rng, grid, prefix, window_size=size, **options)
    whole, _ = attention(rng, grid, prefix, **options)
    whole.set_weights(layer.get_weights())
    windows = [{prefix + i for i in window} for window in places(grid, size)]
    tokens = range(x.shape[1])
    together = lambda i, j: min(i, j) < prefix or any({i, j} <= window for window in windows)
    mask = np.array([[[together(i, j) for j in tokens] for i in tokens]] * 2)
    assert_close(layer(x), whole(x, attention_mask=ops.convert_to_tensor(mask)))


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
