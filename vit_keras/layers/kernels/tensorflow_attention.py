"""Attention on TensorFlow for long sequences, by blocks of queries.

Attention that is written out keeps its weights, a number for each head and pair of tokens. By
blocks, no more than those of one head's block exist at a time. Only q, k and v are kept, and the
gradient computes the weights again (arXiv 2205.14135).
"""

import functools

import tensorflow as tf

from vit_keras.layers.kernels import long_sequences
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
    def of_head(tensors, sums):
        query, key, value = tensors  # (N, d)

        def of_block(blocks, sums):
            weights = _weights(blocks[0] * scale, key)
            return [tf.matmul(tf.cast(weights, value.dtype), value)], sums

        (x,), _ = _loop(of_block, [_blocks(query)], 1)
        return [_tokens(x, query.shape[0])], sums

    (x,), _ = _loop(of_head, [_heads(y) for y in (query, key, value)], 1)
    return _ungrouped(x, query.shape[2])


def _backward(query, key, value, scale, x, gradient):
    exact = _exact(query)
    with tf.control_dependencies([gradient]):  # else it is computed in the forward pass, and kept
        tensors = [_heads(y) for y in (query, key, value)]
    products = tf.reduce_sum(tf.cast(gradient * x, exact), -1, keepdims=True)  # (B, N, H, 1)

    def of_head(tensors, sums):
        query, key, value, *others = tensors

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
            return [tf.matmul(logits, key) * scale], sums

        zeros = tf.zeros_like(key, exact)
        blocks = [_blocks(y) for y in (query, *others)]
        (query_gradient,), of_others = _loop(of_block, blocks, 1, (zeros, zeros))
        of_others = [tf.cast(y, key.dtype) for y in of_others]
        return [_tokens(query_gradient, query.shape[0]), *of_others], sums

    gradients, _ = _loop(of_head, [*tensors, _heads(gradient), _heads(products)], 3)
    return [_ungrouped(y, query.shape[2]) for y in gradients]


def _loop(function, tensors, count, sums=()):
    """Calls `function(rows, sums) -> results, sums` for each index of the first axis of `tensors`.

    Returns:
        `count` results, each shaped like the tensor at its place, and the last sums.
    """
    rows = tf.shape(tensors[0])[0] if tensors[0].shape[0] is None else tensors[0].shape[0]
    results = [
        tf.TensorArray(like.dtype, rows, element_shape=like.shape[1:]) for like in tensors[:count]
    ]

    def body(i, results, sums):
        new, sums = function([x[i] for x in tensors], sums)
        return i + 1, [result.write(i, x) for result, x in zip(results, new)], sums

    _, results, sums = tf.while_loop(
        lambda i, *_: i < rows, body, (0, results, sums), parallel_iterations=1
    )
    return [result.stack() for result in results], sums


def _weights(query, key):
    """softmax(q kᵀ) of `(…, Q, d)` and `(…, N, d)`, in float32 at least."""
    logits = tf.matmul(query, key, transpose_b=True)
    return tf.nn.softmax(tf.cast(logits, _exact(query)))


def _exact(x):
    return tf.float64 if x.dtype == tf.float64 else tf.float32


def _heads_first(x):
    """`(B, N, H, d)` <-> `(B, H, N, d)`."""
    return tf.transpose(x, (0, 2, 1, 3))


def _heads(x):
    """`(B, N, H, d)` -> `(B·H, N, d)`."""
    return tf.reshape(_heads_first(x), (-1, x.shape[1], x.shape[3]))


def _ungrouped(x, heads):
    """`(B·H, N, d)` -> `(B, N, H, d)`."""
    return _heads_first(tf.reshape(x, (-1, heads, *x.shape[1:])))


def _blocks(x):
    """`(N, d)` -> `(blocks, Q, d)`, with zeros for the tokens that the last one lacks.

    All blocks have one size, which XLA needs. A block is twice as large as on JAX, because each one
    is another round of operators' calls here.
    """
    count, size = divide(x.shape[0], 2 * long_sequences.BLOCK)
    return tf.reshape(tf.pad(x, ((0, count * size - x.shape[0]), (0, 0))), (count, size, -1))


def _tokens(blocks, tokens):
    """`(blocks, Q, d)` -> `(N, d)`."""
    return tf.reshape(blocks, (-1, blocks.shape[2]))[:tokens]


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
