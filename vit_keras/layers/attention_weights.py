"""Attention that is written out, so that its weights are there as numbers."""

import operator
from collections.abc import Callable

import keras
from keras import ops


def weights_dtype(compute_dtype: str) -> str:
    """Returns the type of the attention weights: the compute type, but float32 at least."""
    return "float32" if compute_dtype in ("float16", "bfloat16") else compute_dtype


def attend(query, key, value, bias, drop: Callable, compute_dtype: str):
    """softmax(q kᵀ + bias) v, with (B, H) as one axis: XLA's fastest form on CPUs.

    Args:
        query: Queries `(B, N_q, H, d)`, which are multiplied by 1/√d already.
        key: Keys `(B, N_kv, H, d)`.
        value: Values `(B, N_kv, H, d)`.
        bias: Added to the logits, `(B, H, N, N)`, or `(H, N, N)` for all images; None for nothing.
        drop: A function of the weights, such as a dropout.
        compute_dtype: The type that the layer computes in.

    Returns:
        The result `(B, N_q, H, d)`, and the weights `(B, H, N_q, N_kv)` before `drop`.
    """
    _, queries, heads, size = query.shape
    query, key, value = map(_heads_first, (query, key, value))  # (B·H, N, d)
    # Keras' product of float64 tensors is float32 on torch; the operator's is not.
    matmul = operator.matmul if compute_dtype == "float64" else ops.matmul
    logits = matmul(query, ops.transpose(key, (0, 2, 1)))  # (B·H, N_q, N_kv)
    if bias is not None:
        logits = _add_bias(logits, bias)
    if keras.backend.standardize_dtype(logits.dtype) in ("float16", "bfloat16"):
        logits = ops.cast(logits, "float32")
    weights = ops.cast(ops.softmax(logits, axis=-1), weights_dtype(compute_dtype))
    weights = ops.reshape(weights, (-1, heads, queries, weights.shape[-1]))  # (B, H, N_q, N_kv)
    dropped = drop(ops.cast(weights, value.dtype))
    dropped = ops.reshape(dropped, (-1, *dropped.shape[2:]))
    x = ops.reshape(matmul(dropped, value), (-1, heads, queries, size))
    return ops.transpose(x, (0, 2, 1, 3)), weights


def _add_bias(logits, bias):
    """Adds biases `(B, H, N, N)`, or `(H, N, N)` of all images, to logits `(B·H, N, N)`."""
    if len(bias.shape) == 3:
        logits = ops.reshape(logits, (-1, *bias.shape)) + ops.cast(bias, logits.dtype)
        return ops.reshape(logits, (-1, *bias.shape[1:]))
    return logits + ops.reshape(bias, (-1, *logits.shape[1:]))


def _heads_first(x):
    """`(B, N, H, d)` -> `(B·H, N, d)`."""
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, x.shape[1], x.shape[3]))
