"""Long sequences: attention by blocks, and layers that keep less, against what they replace."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.helpers import assert_close, randomize, to_numpy
from vit_keras.layers import EncoderBlock, backends
from vit_keras.layers.attention import fused_attention

pytestmark = pytest.mark.on("jax", "tensorflow")
BACKEND = keras.backend.backend()
TOLERANCE = {"float32": 2e-6, "float64": 1e-12, "bfloat16": 2e-2, "float16": 2e-3}


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    """Sequences of four tokens and more are long, and a block has at most two or four queries."""
    monkeypatch.setattr(backends, "BLOCK", 2)
    monkeypatch.setattr(backends, "LONG", 4)


def pull(function, values, upstream, mode="eager"):
    """The result of `function` on some tensors, and the gradients to them and to `upstream`."""
    if BACKEND == "jax":
        import jax

        y, back = jax.vjp(function, *map(jax.numpy.asarray, values))
        return [y, *back(jax.numpy.asarray(upstream, y.dtype))]
    import tensorflow as tf

    def compute(*values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            y = function(*values)
        return [y, *tape.gradient(y, values, tf.cast(upstream, y.dtype))]

    if mode != "eager":
        compute = tf.function(compute, jit_compile=mode == "compiled")
    return compute(*map(tf.convert_to_tensor, values))


def formula(query, key, value, scale, upstream):
    """softmax(scale q kᵀ) v of `(B, N, H, d)` and its gradients, in float64."""
    query, key, value, upstream = (
        x.astype("float64").transpose(0, 2, 1, 3) for x in (query, key, value, upstream)
    )
    weights = reference.softmax(scale * query @ key.swapaxes(2, 3))
    x = weights @ value
    sums = np.sum(upstream * x, -1, keepdims=True)
    logits = scale * weights * (upstream @ value.swapaxes(2, 3) - sums)
    gradients = logits @ key, logits.swapaxes(2, 3) @ query, weights.swapaxes(2, 3) @ upstream
    return [y.transpose(0, 2, 1, 3) for y in (x, *gradients)]


@pytest.mark.parametrize("queries, keys", [(10, 10), (5, 7)])
@pytest.mark.parametrize("dtype", [x for x in TOLERANCE if (BACKEND, x) != ("jax", "float64")])
def test_attention_and_its_gradients_equal_the_formula(rng, dtype, queries, keys):
    shapes = (2, queries, 3, 5), (2, keys, 3, 5), (2, keys, 3, 5)
    values = [keras.ops.cast(rng.normal(size=shape), dtype) for shape in shapes]
    upstream = rng.normal(size=shapes[0])
    results = pull(lambda *x: fused_attention(*x, 0.4), values, upstream)
    wide = [to_numpy(keras.ops.cast(x, "float64")) for x in values]
    for result, expected in zip(results, formula(*wide, 0.4, upstream), strict=True):
        assert keras.backend.standardize_dtype(result.dtype) == dtype
        result = to_numpy(keras.ops.cast(result, "float64"))
        assert_close(result, expected, rtol=TOLERANCE[dtype])


@pytest.mark.on("tensorflow")
@pytest.mark.parametrize("mode", ["graph", "compiled"])
def test_graphs_and_compiled_graphs_compute_the_same(rng, mode):
    values = [rng.normal(size=(2, 10, 3, 5)).astype("float32") for _ in range(3)]
    upstream = rng.normal(size=(2, 10, 3, 5))
    results = pull(lambda *x: fused_attention(*x, 0.4), values, upstream, mode)
    for result, expected in zip(results, formula(*values, 0.4, upstream), strict=True):
        assert_close(result, expected, rtol=2e-6)


CASES = {
    "plain": {"gelu": "tanh"},
    "quick": {"gelu": "quick"},
    "rotary": {"position_embedding": "rope2d", "grid": (2, 5)},
    "options": {"options": {"qk_norm": True, "layer_scale": 0.5, "mlp": "swiglu"}},
    "rms": {"options": {"norm": "rms", "parallel": True}},
    "rematerialized": {"rematerialize": True},
    "relative": {"position_embedding": "relative"},
    "bfloat16": {"dtype": "mixed_bfloat16"},
}


@pytest.mark.parametrize("training", [True, pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("case", CASES)
def test_a_block_and_its_gradients_equal_those_of_short_sequences(monkeypatch, rng, case, training):
    x, upstream = rng.normal(size=(2, 2, 10, 12)).astype("float32")
    block = EncoderBlock(3, 20, seed=0, **CASES[case])
    block.build(x.shape)
    randomize(block, rng)
    by_blocks = with_weights(block, x, upstream, training)
    monkeypatch.setattr(backends, "LONG", 100)
    written_out = with_weights(block, x, upstream, training)
    for one, other in zip(by_blocks, written_out, strict=True):
        assert_close(one, other, 0.08 if case == "bfloat16" else 4e-6, floor=1)


def with_weights(block, x, upstream, training):
    """The output of a block and the gradients to its input and its weights."""
    names = [*block.trainable_variables]

    def compute(x, *weights):
        if BACKEND == "tensorflow":
            return block(x, training=training)
        return block.stateless_call(weights, [], x, training=training)[0]

    if BACKEND == "jax":
        results = pull(compute, [x, *(v.value for v in names)], upstream)
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            x = tf.constant(x)
            tape.watch(x)
            y = compute(x)
        sources = [x, *(v.value for v in names)]
        results = [y, *tape.gradient(y, sources, tf.cast(upstream, y.dtype))]
    return [to_numpy(keras.ops.cast(y, "float32")) for y in results]
