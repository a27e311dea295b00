"""Attention on JAX: XLA's on accelerators, and by blocks of queries for long sequences on CPUs.

XLA keeps the weights of attention that is written out, a number for each head and pair of tokens.
By blocks, no more than the weights of a block exist at a time. Only q, k, v, the result and a
logarithm for each query are kept, and the gradient computes the weights again (arXiv 2205.14135).
"""

import functools

import jax
import jax.numpy as jnp
import keras
from keras import ops

from vit_keras.layers.kernels.long_sequences import divide, is_long, measured
from vit_keras.layers.kernels.timing import is_faster


def attention(query, key, value, scale):
    """softmax(scale q kᵀ) v of `(B, N, H, d)`; None for short sequences on CPUs.

    XLA's own attention has no float16 on CPUs, and the sum that the layer writes out is faster.
    """
    if not on_cpus():
        return ops.dot_product_attention(query, key, value, scale=scale)
    if is_long(query.shape[1], key.shape[1]):
        return blockwise(query, key, value, scale)
    return None


def on_cpus() -> bool:
    """Whether models run on CPUs."""
    return all(device.startswith("cpu") for device in keras.distribution.list_devices())


def blockwise(query, key, value, scale):
    """softmax(scale q kᵀ) v of `(B, N, H, d)`, by blocks of queries: `(B, N, H, d)`."""
    return jnp.reshape(_attend(query, key, value, scale), query.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _attend(query, key, value, scale):
    """The result as `(B, N, D)`, so that it and the rows of the next product are one array."""
    return _forward(query, key, value, scale)[0]


def _forward(query, key, value, scale):
    key, value, queries = _heads_first(key), _heads_first(value), _blocks(query)

    def of_block(i, results):
        logits = _logits(queries[i] * scale, key)  # (B, H, Q, N)
        most = jnp.max(logits, axis=-1, keepdims=True)
        numerators = jnp.exp(logits - most)
        total = jnp.sum(numerators, axis=-1, keepdims=True)
        x = _product("bhqn,bhnd->bhqd", numerators.astype(value.dtype), value) / total
        block = x.astype(query.dtype), most + jnp.log(total)
        return tuple(result.at[i].set(part) for result, part in zip(results, block))

    logarithms = jnp.zeros((*queries.shape[:-1], 1), exact(query))
    results = wait(queries, jnp.zeros_like(queries), logarithms)
    x, logarithms = jax.lax.fori_loop(0, len(queries), of_block, results)
    x = _tokens(x, query.shape[1])
    return x, (queries, key, value, x, logarithms)


def _backward(scale, kept, gradient):
    queries, key, value, x, logarithms = kept  # key and value are (B, H, N, d)
    shape = (*x.shape[:2], key.shape[1], -1)
    gradient, x = jnp.reshape(gradient, shape), jnp.reshape(x, shape)
    sums = _blocks(jnp.sum((gradient * x).astype(exact(x)), axis=-1, keepdims=True))
    gradients = _blocks(gradient)

    def of_block(i, results):
        query_gradients, key_gradient, value_gradient = results
        query, gradient = queries[i] * scale, gradients[i]
        weights = jnp.exp(_logits(query, key) - logarithms[i])
        logits = weights * (_logits(gradient, value) - sums[i])  # their gradient
        weights, logits = weights.astype(value.dtype), logits.astype(key.dtype)
        block = scale * _product("bhqn,bhnd->bhqd", logits, key)
        return (
            query_gradients.at[i].set(block.astype(query.dtype)),
            key_gradient + _product("bhqn,bhqd->bhnd", logits, query),
            value_gradient + _product("bhqn,bhqd->bhnd", weights, gradient),
        )

    zeros = jnp.zeros(key.shape, exact(key))
    results = wait(gradient, jnp.zeros_like(queries), zeros, zeros)
    query_gradients, *others = jax.lax.fori_loop(0, len(queries), of_block, results)
    others = (_heads_first(other).astype(key.dtype) for other in others)  # (B, N, H, d) again
    return jnp.reshape(_tokens(query_gradients, x.shape[1]), shape), *others


_attend.defvjp(_forward, _backward)


def wait(after, *tensors):
    """Some tensors, which cannot be computed before `after`: they read a number of it, times 0.

    XLA begins a program with all that needs no data, such as zeros, and keeps it until its use.
    """
    nothing = 0 * after.ravel()[0]
    return tuple(x + nothing.astype(x.dtype) for x in tensors)


def exact(x):
    """The type to sum in: float32 at least."""
    return jnp.promote_types(x.dtype, jnp.float32)


def _product(equation, x, y):
    """A product of tensors, in float32 at least."""
    return jnp.einsum(equation, x, y, preferred_element_type=exact(x))


_logits = functools.partial(_product, "bhqd,bhnd->bhqn")


def _heads_first(x):
    """`(B, N, H, d)` <-> `(B, H, N, d)`."""
    return jnp.transpose(x, (0, 2, 1, 3))


def _blocks(x):
    """`(B, N, H, d)` -> `(blocks, B, H, Q, d)`, with zeros for the tokens that the last one lacks.

    A loop goes over this axis alone, because devices may share the images or the heads.
    """
    count, size = divide(x.shape[1])
    x = jnp.pad(x, ((0, 0), (0, count * size - x.shape[1]), (0, 0), (0, 0)))
    return jnp.transpose(jnp.reshape(x, (x.shape[0], count, size, *x.shape[2:])), (1, 0, 3, 2, 4))


def _tokens(blocks, tokens):
    """`(blocks, B, H, Q, d)` -> `(B, N, D)`."""
    x = jnp.transpose(blocks, (1, 0, 3, 2, 4))
    return jnp.reshape(x, (x.shape[0], -1, x.shape[3] * x.shape[4]))[:, :tokens]


def measure(rounds=3, heads=6, width=64) -> dict[str, dict[str, bool]]:
    """The lengths from which blocks, which take less memory, take no more time either."""
    if not on_cpus():
        return {}
    new, old = map(_gradient, (blockwise, _written_out))

    def pays(tokens):
        x = jnp.linspace(-3, 3, tokens * heads * width).reshape(1, tokens, heads, width)
        return not is_faster(old, new, [(x,)], rounds)

    return {"long_sequences": measured(pays)}


def _gradient(attend):
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(attend(x, x, x, x.shape[-1] ** -0.5))))
    return lambda x: gradient(x).block_until_ready()


def _written_out(query, key, value, scale):
    query, key, value = map(_heads_first, (query * scale, key, value))
    weights = jax.nn.softmax(_logits(query, key))
    return _heads_first(_product("bhqn,bhnd->bhqd", weights, value))
