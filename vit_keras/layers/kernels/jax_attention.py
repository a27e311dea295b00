"""Attention on JAX: XLA's on accelerators, and by blocks of queries for long sequences on CPUs.

XLA keeps the weights of attention that is written out, a number for each head and pair of tokens.
By blocks, no more than those of a block exist at a time. Only q, k, v, the result and a logarithm
for each query are kept, and the gradient computes the weights again (arXiv 2205.14135).
"""

import functools

import jax
import jax.numpy as jnp
import keras
from keras import ops

from vit_keras.layers.kernels.long_sequences import LENGTHS, divide, is_long
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


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def blockwise(query, key, value, scale):
    """softmax(scale q kᵀ) v of `(B, N, H, d)`, by blocks of queries: `(B, N, H, d)`."""
    return _forward(query, key, value, scale)[0]


def _forward(query, key, value, scale):
    key, value = _heads_first(key), _heads_first(value)  # (B, H, N, d)

    def of_block(carry, block):
        logits = _logits(block * scale, key)  # (B, H, Q, N)
        most = jnp.max(logits, axis=-1, keepdims=True)
        numerators = jnp.exp(logits - most)
        total = jnp.sum(numerators, axis=-1, keepdims=True)
        x = _product("bhqn,bhnd->bhqd", numerators.astype(value.dtype), value) / total
        return carry, (x.astype(query.dtype), most + jnp.log(total))

    _, (x, logarithms) = jax.lax.scan(of_block, None, _blocks(query))
    x = _tokens(x, query.shape[1])
    return x, (*(query, key, value), x, logarithms)


def _backward(scale, kept, gradient):
    query, key, value, x, logarithms = kept  # key and value are (B, H, N, d)
    products = (gradient * x).astype(logarithms.dtype)
    sums = jnp.sum(products, axis=-1, keepdims=True)  # (B, N, H, 1)

    def of_block(sums_so_far, blocks):
        query, gradient, logarithms, sums = blocks
        query = query * scale
        weights = jnp.exp(_logits(query, key) - logarithms)
        logits = weights * (_logits(gradient, value) - sums)  # their gradient
        weights, logits = weights.astype(value.dtype), logits.astype(key.dtype)
        query_gradient = scale * _product("bhqn,bhnd->bhqd", logits, key)
        summands = (
            _product("bhqn,bhqd->bhnd", logits, query),
            _product("bhqn,bhqd->bhnd", weights, gradient),
        )
        return tuple(map(jnp.add, sums_so_far, summands)), query_gradient.astype(query.dtype)

    zeros = jnp.zeros(key.shape, logarithms.dtype)
    blocks = _blocks(query), _blocks(gradient), logarithms, _blocks(sums)
    others, query_gradient = jax.lax.scan(of_block, (zeros, zeros), blocks)
    others = (_heads_first(other).astype(key.dtype) for other in others)  # (B, N, H, d) again
    return _tokens(query_gradient, query.shape[1]), *others


blockwise.defvjp(_forward, _backward)


def _product(equation, x, y):
    """A product of tensors, in float32 at least."""
    exact = jnp.promote_types(x.dtype, jnp.float32)
    return jnp.einsum(equation, x, y, preferred_element_type=exact)


_logits = functools.partial(_product, "bhqd,bhnd->bhqn")


def _heads_first(x):
    """`(B, N, H, d)` <-> `(B, H, N, d)`."""
    return jnp.transpose(x, (0, 2, 1, 3))


def _blocks(x):
    """`(B, N, H, d)` -> `(blocks, B, H, Q, d)`, with zeros for the tokens that the last one lacks.

    A scan goes over this axis alone, because devices may share the images or the heads.
    """
    count, size = divide(x.shape[1])
    x = jnp.pad(x, ((0, 0), (0, count * size - x.shape[1]), (0, 0), (0, 0)))
    return jnp.transpose(jnp.reshape(x, (x.shape[0], count, size, *x.shape[2:])), (1, 0, 3, 2, 4))


def _tokens(blocks, tokens):
    """`(blocks, B, H, Q, d)` -> `(B, N, H, d)`."""
    x = jnp.transpose(blocks, (1, 0, 3, 2, 4))
    return jnp.reshape(x, (x.shape[0], -1, *x.shape[3:]))[:, :tokens]


def measure(rounds=3, heads=6, width=64) -> dict[str, dict[str, bool]]:
    """The lengths from which blocks are faster than the sum that the layer writes out."""
    if not on_cpus():
        return {}
    new, old = map(_gradient, (blockwise, _written_out))
    faster = {}
    for tokens, option in LENGTHS.items():
        if option is not None:
            x = jnp.linspace(-3, 3, tokens * heads * width).reshape(1, tokens, heads, width)
            faster[option] = is_faster(new, old, [(x,)], rounds)
    return {"long_sequences": faster}


def _gradient(attend):
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(attend(x, x, x, x.shape[-1] ** -0.5))))
    return lambda x: gradient(x).block_until_ready()


def _written_out(query, key, value, scale):
    query, key, value = map(_heads_first, (query * scale, key, value))
    weights = jax.nn.softmax(_logits(query, key))
    return _heads_first(_product("bhqn,bhnd->bhqd", weights, value))
