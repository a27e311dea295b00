"""Attention between long sequences in blocks of queries, for JAX's CPUs and TensorFlow.

Attention by explicit products keeps a number for each head and pair of tokens. In blocks, only the
weights of one head's block exist at a time, and the gradient computes them again (arXiv
2205.14135).
"""

from collections.abc import Callable

import keras
from keras import ops

LONG = 1024  # tokens from which on a sequence is long
BLOCK = 256  # queries at a time, at most


def is_long(*lengths: int | None) -> bool:
    """Whether sequences of these lengths are all long; an unknown length counts as short."""
    return min(length or 0 for length in lengths) >= LONG


def divide(tokens: int, most: int) -> tuple[int, int]:
    """The number of blocks and their common size; together they hold `tokens` and a few more."""
    count = -(-tokens // most)
    return count, -(-tokens // count)


def blockwise(query, key, value, scale, loop: Callable, most: int):
    """softmax(scale q kᵀ) v of `(B, N, H, d)`, in blocks of at most `most` queries.

    `loop(function, tensors)` calls a function for each index of the first axis, one after the
    other, and stacks the results, which match the first tensor's entries in shape and type.
    """
    _, tokens, heads, width = query.shape
    count, size = divide(tokens, most)
    query = ops.pad(query * scale, ((0, 0), (0, count * size - tokens), (0, 0), (0, 0)))
    # One head, so that blocks fit into a processor's caches, or all if devices share the heads.
    shares_heads = isinstance(keras.distribution.distribution(), keras.distribution.ModelParallel)
    group = heads if shares_heads else 1

    def divided(x, blocks):  # (groups, blocks, B, G, Q, d)
        x = ops.reshape(x, (-1, blocks, x.shape[1] // blocks, heads // group, group, width))
        return ops.transpose(x, (3, 1, 0, 4, 2, 5))

    def of_group(tensors):
        queries, *others = tensors
        wide = keras.backend.result_type(queries.dtype, "float32")  # for the sums of gradients
        key, value = (ops.cast(x[0], wide) for x in others)  # (B, G, N, d)
        return loop(lambda query: _of_block(query, key, value), queries)

    x = loop(of_group, (divided(query, count), divided(key, 1), divided(value, 1)))
    x = ops.reshape(ops.transpose(x, (2, 1, 4, 0, 3, 5)), (-1, count * size, heads, width))
    return x[:, :tokens]


@ops.custom_gradient
def _of_block(query, key, value):
    """softmax(q kᵀ) v of `(…, Q, d)` and `(…, N, d)`, in the type of the queries."""
    narrow = lambda x: ops.cast(x, query.dtype)

    def weights():
        logits = ops.matmul(query, _transposed(narrow(key)))
        return ops.softmax(ops.cast(logits, key.dtype))

    def gradient(upstream):
        of_weights = ops.cast(ops.matmul(upstream, _transposed(narrow(value))), key.dtype)
        common = ops.sum(ops.cast(upstream * x, key.dtype), axis=-1, keepdims=True)
        again = weights()
        logits = narrow(again * (of_weights - common))
        return (
            ops.matmul(logits, narrow(key)),
            ops.cast(ops.matmul(_transposed(logits), query), key.dtype),
            ops.cast(ops.matmul(_transposed(narrow(again)), upstream), key.dtype),
        )

    x = ops.matmul(narrow(weights()), narrow(value))
    return x, gradient


def _transposed(x):
    return ops.swapaxes(x, -1, -2)
