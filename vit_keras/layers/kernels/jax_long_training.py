"""Products, layer normalization and MLPs on JAX that keep little, for long sequences on CPUs.

XLA keeps several arrays of a normalization and of GELU. Here only their inputs are kept, and the
gradient computes the rest again. XLA also computes the gradients to all weights last, and keeps
until then what they are made of. Here the gradient to an input waits for the gradients to weights.
"""

import functools

import jax
import jax.numpy as jnp
from keras import ops

from vit_keras.layers.kernels.jax_attention import exact, on_cpus, wait
from vit_keras.layers.kernels.long_sequences import divide, is_long


def affine(rows, kernel, bias, tokens: int):
    """rows kernel + bias of `(R, K)`, `(K, M)` and `(M,)` or None: `(R, M)`."""
    if is_long(tokens) and on_cpus():
        return _affine(rows, kernel, bias, None)
    y = ops.matmul(rows, kernel)
    return y if bias is None else ops.add(y, bias)


def layer_norm(x, gamma, beta, epsilon: float):
    """LN(x) γ + β over the last axis of `(…, D)`."""
    gamma, beta = ops.convert_to_tensor(gamma), ops.convert_to_tensor(beta)
    normalize = _layer_norm if _is_long(x) else _portable_layer_norm
    return normalize(x, gamma, beta, epsilon)


def mlp(x, first, second):
    """second(first(x)) of two `Dense` layers in training, `(B, N, D)` -> `(B, N, D)`."""
    if not _is_long(x):
        return second(first(x))
    weights = first.kernel, first.bias, second.kernel, second.bias
    first_kernel, first_bias, kernel, bias = map(ops.convert_to_tensor, weights)
    return _affine(_affine(x, first_kernel, first_bias, None), kernel, bias, first.activation)


def _is_long(x) -> bool:
    return x.ndim == 3 and is_long(x.shape[1]) and on_cpus()


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _affine(x, kernel, bias, activation):
    """activation(x) kernel + bias of `(…, K)`, `(K, M)` and `(M,)`, as one product of all rows."""
    x = x if activation is None else activation(x)
    y = _flat(x) @ kernel
    y = y if bias is None else y + bias
    return jnp.reshape(y, (*x.shape[:-1], kernel.shape[1]))


def _affine_forward(x, kernel, bias, activation):
    """Keeps no more than the gradients need; a frozen kernel needs no input."""
    needed = kernel.perturbed or activation is not None
    kept = x.value if needed else None
    # What is () learns and what is None does not, since JAX keeps structures as they are.
    learns = (() if w is not None and w.perturbed else None for w in (kernel, bias))
    values = (w if w is None else w.value for w in (x, kernel, bias))
    return _affine(*values, activation), (kept, kernel.value, *learns)


def _affine_backward(activation, kept, gradient):
    x, kernel, kernel_learns, bias_learns = kept
    into = jnp.reshape(_flat(gradient) @ kernel.T, (*gradient.shape[:-1], kernel.shape[0]))
    if activation is not None:
        x, into = by_blocks(functools.partial(_activate, activation), x, into)
    kernel_gradient = bias_gradient = None
    if kernel_learns is not None:
        kernel_gradient = jnp.einsum("rk,rm->km", _flat(x), _flat(gradient))
    if bias_learns is not None:
        bias_gradient = jnp.sum(_flat(gradient), 0)
    return _after(into, kernel_gradient, bias_gradient), kernel_gradient, bias_gradient


def _after(x, *others):
    for other in others:
        (x,) = (x,) if other is None else wait(other, x)
    return x


def _activate(activation, x, gradient):
    """The activation of some rows, and the gradient to them."""
    y, pull = jax.vjp(activation, x)
    return y, *pull(gradient)


_affine.defvjp(_affine_forward, _affine_backward, symbolic_zeros=True)


def _portable_layer_norm(x, gamma, beta, epsilon):
    return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)


_layer_norm = jax.custom_vjp(_portable_layer_norm, nondiff_argnums=(3,))


def _layer_norm_backward(epsilon, kept, gradient):
    x, gamma, beta = kept
    wide = exact(x)

    def of_rows(x, gradient):
        """The gradient to some rows, and the rows with mean 0 and variance 1."""
        scaled, x = gradient.astype(wide) * gamma, x.astype(wide)
        x = x - jnp.mean(x, -1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + epsilon)
        normal = x * scale
        common = jnp.mean(scaled * normal, -1, keepdims=True)
        return (scaled - jnp.mean(scaled, -1, keepdims=True) - normal * common) * scale, normal

    rows, normal = by_blocks(of_rows, x, gradient)
    gamma_gradient = jnp.sum(gradient * normal, (0, 1)).astype(gamma.dtype)
    beta_gradient = jnp.sum(gradient.astype(wide), (0, 1)).astype(beta.dtype)
    rows = _after(rows.astype(x.dtype), gamma_gradient, beta_gradient)
    return rows, gamma_gradient, beta_gradient


_layer_norm.defvjp(
    lambda x, gamma, beta, epsilon: (
        _portable_layer_norm(x, gamma, beta, epsilon),
        (x, gamma, beta),
    ),
    _layer_norm_backward,
)


def _flat(x):
    """`(…, K)` -> `(R, K)`."""
    return jnp.reshape(x, (-1, x.shape[-1]))


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

    zeros = wait(tensors[-1], *(jnp.zeros(shape.shape, shape.dtype) for shape in shapes))
    return jax.lax.fori_loop(0, count, compute, zeros)
