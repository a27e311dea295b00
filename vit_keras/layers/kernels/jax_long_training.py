"""Layer normalization and MLPs on JAX that keep their inputs alone, for long sequences on CPUs.

XLA keeps several arrays for each: the differences and the scales of a normalization, and what GELU
consists of. Here the gradient computes them again.
"""

import functools

import jax
import jax.numpy as jnp
from keras import ops

from vit_keras.layers.kernels.jax_attention import on_cpus
from vit_keras.layers.kernels.long_sequences import divide, is_long


def layer_norm(x, gamma, beta, epsilon: float):
    """LN(x) γ + β over the last axis of `(…, D)`."""
    gamma, beta = ops.convert_to_tensor(gamma), ops.convert_to_tensor(beta)
    if x.ndim == 3 and is_long(x.shape[1]) and on_cpus():
        return _layer_norm(x, gamma, beta, epsilon)
    return _portable(x, gamma, beta, epsilon)


def mlp(x, first, second):
    """second(first(x)) of two `Dense` layers in training, `(B, N, D)` -> `(B, N, D)`."""
    if not (x.ndim == 3 and is_long(x.shape[1]) and on_cpus()):
        return second(first(x))
    weights = first.kernel, first.bias, second.kernel, second.bias
    first_kernel, first_bias, kernel, bias = map(ops.convert_to_tensor, weights)
    hidden = _matmul(x, first_kernel) + first_bias
    return _second(hidden, kernel, first.activation) + bias


def _portable(x, gamma, beta, epsilon):
    return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _layer_norm(x, gamma, beta, epsilon):
    return _portable(x, gamma, beta, epsilon)


def _layer_norm_backward(epsilon, kept, gradient):
    x, gamma, beta = kept
    exact = jnp.promote_types(x.dtype, jnp.float32)

    def of_rows(x, gradient):
        """The gradient to some rows, and the rows with mean 0 and variance 1."""
        scaled, x = gradient.astype(exact) * gamma, x.astype(exact)
        x = x - jnp.mean(x, -1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + epsilon)
        normal = x * scale
        common = jnp.mean(scaled * normal, -1, keepdims=True)
        return (scaled - jnp.mean(scaled, -1, keepdims=True) - normal * common) * scale, normal

    rows, normal = by_blocks(of_rows, x, gradient)
    gamma_gradient = jnp.sum(gradient * normal, (0, 1)).astype(gamma.dtype)
    beta_gradient = jnp.sum(gradient.astype(exact), (0, 1)).astype(beta.dtype)
    return rows.astype(x.dtype), gamma_gradient, beta_gradient


_layer_norm.defvjp(
    lambda x, gamma, beta, epsilon: (_portable(x, gamma, beta, epsilon), (x, gamma, beta)),
    _layer_norm_backward,
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _second(hidden, kernel, activation):
    """activation(hidden) kernel of `(B, N, M)` and `(M, D)`: `(B, N, D)`."""
    return _matmul(activation(hidden), kernel)


def _second_backward(activation, kept, gradient):
    hidden, kernel = kept

    def of_rows(hidden, gradient):
        """The units of some rows and the gradient to their inputs."""
        units, pull = jax.vjp(activation, hidden)
        return units, *pull(gradient)

    units, hidden_gradient = by_blocks(of_rows, hidden, _matmul(gradient, kernel.T))
    rows = (x.reshape(-1, x.shape[-1]) for x in (units, gradient))
    return hidden_gradient, jnp.einsum("rm,rd->md", *rows)


_second.defvjp(
    lambda hidden, kernel, activation: (_second(hidden, kernel, activation), (hidden, kernel)),
    _second_backward,
)


def _matmul(x, kernel):
    """`(B, N, K)` and `(K, M)` -> `(B, N, M)`, as one product of all rows."""
    return jnp.reshape(x.reshape(-1, x.shape[-1]) @ kernel, (*x.shape[:-1], kernel.shape[1]))


def by_blocks(function, *tensors):
    """`function(*tensors)` of `(B, N, …)`, by blocks of tokens, between which nothing is shared.

    In a loop, because XLA computes what it can before the backward pass begins, and then keeps it.
    The last block begins early enough to be whole, and computes some rows a second time.
    """
    tokens = tensors[0].shape[1]
    count, size = divide(tokens)
    shapes = jax.eval_shape(function, *tensors)

    def compute(block, results):
        start = jnp.minimum(block * size, tokens - size)
        rows = (jax.lax.dynamic_slice_in_dim(x, start, size, 1) for x in tensors)
        return tuple(
            jax.lax.dynamic_update_slice_in_dim(x, part, start, 1)
            for x, part in zip(results, function(*rows))
        )

    zeros = tuple(jnp.zeros(shape.shape, shape.dtype) for shape in shapes)
    return jax.lax.fori_loop(0, count, compute, zeros)
