"""Attention on TensorFlow for long sequences, by blocks of queries.

Attention that is written out keeps its weights, a number for each head and pair of tokens. By
blocks, no more than those of a block exist at a time. Only q, k and v are kept, and the gradient
computes the weights again (arXiv 2205.14135).
"""

import functools

import tensorflow as tf

from vit_keras.layers.kernels.long_sequences import divide, is_long, measured
from vit_keras.layers.kernels.timing import is_faster


def attention(query, key, value, scale):
    """softmax(scale q kᵀ) v of `(B, N, H, d)`; None for short sequences."""
    if is_long(query.shape[1], key.shape[1]):
        return blockwise(query, key, value, scale)
    return None


def blockwise(query, key, value, scale):
    """softmax(scale q kᵀ) v of `(B, N, H, d)`, by blocks of queries: `(B, N, H, d)`."""

    @tf.custom_gradient
    def attend(query, key, value):
        x = _forward(query, key, value, scale)
        return x, functools.partial(_backward, query, key, value, scale, x)

    return attend(query, key, value)


def _forward(query, key, value, scale):
    key, value = _heads_first(key), _heads_first(value)  # (B, H, N, d)

    def of_block(blocks, sums):
        weights = _weights(blocks[0] * scale, key)
        return tf.matmul(tf.cast(weights, value.dtype), value), sums

    x, _ = _loop(of_block, [_blocks(query)], ())
    return _tokens(x, query.shape[1])


def _backward(query, key, value, scale, x, gradient):
    tokens, exact = query.shape[1], _exact(query)
    with tf.control_dependencies([gradient]):  # else it is computed in the forward pass, and kept
        key, value, queries = _heads_first(key), _heads_first(value), _blocks(query)
    products = tf.reduce_sum(tf.cast(gradient * x, exact), -1, keepdims=True)  # (B, N, H, 1)

    def of_block(blocks, sums):
        query, gradient, products = blocks
        query = query * scale
        weights = _weights(query, key)
        logits = tf.cast(tf.matmul(gradient, value, transpose_b=True), exact)
        logits = weights * (logits - products)  # their gradient
        weights, logits = tf.cast(weights, value.dtype), tf.cast(logits, key.dtype)
        summands = (
            tf.matmul(logits, query, transpose_a=True),
            tf.matmul(weights, gradient, transpose_a=True),
        )
        sums = tuple(x + tf.cast(y, exact) for x, y in zip(sums, summands))
        return tf.matmul(logits, key) * scale, sums

    zeros = tf.zeros_like(key, exact)
    blocks = queries, _blocks(gradient), _blocks(products)
    query_gradient, sums = _loop(of_block, blocks, (zeros, zeros))
    others = (_heads_first(tf.cast(x, key.dtype)) for x in sums)  # (B, N, H, d) again
    return _tokens(query_gradient, tokens), *others


def _loop(function, blocks, sums):
    """Calls `function(block, sums) -> result, sums` for each block of the tensors in `blocks`.

    Returns:
        The results, `(blocks, …)` and like the first tensor, and the last sums.
    """
    count, like = blocks[0].shape[0], blocks[0]
    results = tf.TensorArray(like.dtype, count, element_shape=like.shape[1:])

    def body(i, results, sums):
        result, sums = function([x[i] for x in blocks], sums)
        return i + 1, results.write(i, result), sums

    _, results, sums = tf.while_loop(
        lambda i, *_: i < count, body, (0, results, sums), parallel_iterations=1
    )
    return results.stack(), sums


def _weights(query, key):
    """softmax(q kᵀ) `(B, H, Q, N)`, in float32 at least."""
    logits = tf.matmul(query, key, transpose_b=True)
    return tf.nn.softmax(tf.cast(logits, _exact(query)))


def _exact(x):
    return tf.float64 if x.dtype == tf.float64 else tf.float32


def _heads_first(x):
    """`(B, N, H, d)` <-> `(B, H, N, d)`."""
    return tf.transpose(x, (0, 2, 1, 3))


def _blocks(x):
    """`(B, N, H, d)` -> `(blocks, B, H, Q, d)`, with zeros for the tokens that the last one lacks.

    All blocks have one size, which XLA needs.
    """
    count, size = divide(x.shape[1])
    x = tf.pad(x, ((0, 0), (0, count * size - x.shape[1]), (0, 0), (0, 0)))
    return tf.transpose(tf.reshape(x, (-1, count, size, *x.shape[2:])), (1, 0, 3, 2, 4))


def _tokens(blocks, tokens):
    """`(blocks, B, H, Q, d)` -> `(B, N, H, d)`."""
    _, _, heads, _, width = blocks.shape
    x = tf.transpose(blocks, (1, 0, 3, 2, 4))
    return tf.reshape(x, (-1, blocks.shape[0] * blocks.shape[3], heads, width))[:, :tokens]


def measure(rounds=3, heads=6, width=64) -> dict[str, dict[str, bool]]:
    """The lengths from which blocks, which take less memory, take no more time either."""
    if tf.config.list_logical_devices("GPU"):
        return {}

    def pays(tokens):
        x = tf.reshape(tf.linspace(-3.0, 3.0, tokens * heads * width), (1, tokens, heads, -1))
        new, old = (_gradient(attend, x) for attend in (blockwise, _written_out))
        return not is_faster(old, new, [(x,)], rounds)

    return {"long_sequences": measured(pays)}


def _gradient(attend, like):
    @tf.function
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(attend(x, x, x, x.shape[-1] ** -0.5))
        return tape.gradient(total, x)

    return gradient.get_concrete_function(like)


def _written_out(query, key, value, scale):
    query, key, value = map(_heads_first, (query * scale, key, value))
    return _heads_first(tf.matmul(_weights(query, key), value))
