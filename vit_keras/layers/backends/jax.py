"""JAX's own code: long sequences on CPUs, and prediction steps.

XLA keeps several arrays of GELU; for long sequences, this module keeps only its input.
"""

import functools
import weakref

import jax
import jax.numpy as jnp
import keras
from keras import ops

from vit_keras.layers.backends import long_sequences


def attention(query, key, value, scale):
    """softmax(scale q kᵀ) v of `(B, N, H, d)`; None for short sequences on CPUs.

    XLA's own attention has no float16 on CPUs, and the layer's explicit sum is faster.
    """
    if not on_cpus():
        return ops.dot_product_attention(query, key, value, scale=scale)
    if long_sequences.is_long(query.shape[1], key.shape[1]):
        return long_sequences.blockwise(query, key, value, scale, jax.lax.map, long_sequences.BLOCK)
    return None


def on_cpus() -> bool:
    """Whether models run on CPUs."""
    return all(device.startswith("cpu") for device in keras.distribution.list_devices())


def mlp(x, first, second):
    """second(first(x)) of two `Dense` layers in training, `(B, N, D)` -> `(B, N, D)`.

    For long sequences only the activation's input is kept, not the hidden units.
    """
    if x.ndim != 3 or not (long_sequences.is_long(x.shape[1]) and on_cpus()):
        return second(first(x))
    weights = first.kernel, first.bias, second.kernel, second.bias
    first_kernel, first_bias, kernel, bias = map(ops.convert_to_tensor, weights)
    return _after_activation(x @ first_kernel + first_bias, kernel, first.activation) + bias


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _after_activation(x, kernel, activation):
    """activation(x) @ kernel, `(B, N, K)` and `(K, M)`; the gradient recomputes the units."""
    return activation(x) @ kernel


def _forward(x, kernel, activation):
    return _after_activation(x, kernel, activation), (x, kernel)


def _backward(activation, kept, gradient):
    """The gradients to x and the kernel, in independent blocks of tokens.

    The blocks run in a loop because XLA would otherwise compute what it can before the backward
    pass, and keep it. The last block starts early enough to be full, so it computes some rows
    again.
    """
    x, kernel = kept
    of_units, tokens = gradient @ kernel.T, x.shape[1]
    count, size = long_sequences.divide(tokens, long_sequences.BLOCK)

    def compute(block, results):
        start = jnp.minimum(block * size, tokens - size)
        rows, upstream = (jax.lax.dynamic_slice_in_dim(y, start, size, 1) for y in (x, of_units))
        units, pull = jax.vjp(activation, rows)
        return tuple(
            jax.lax.dynamic_update_slice_in_dim(result, part, start, 1)
            for result, part in zip(results, (units, *pull(upstream)))
        )

    # Without a number of the upstream gradient, XLA would make these zeros first, and keep them.
    zeros = jnp.zeros_like(x) + 0 * of_units.ravel()[0]
    units, of_x = jax.lax.fori_loop(0, count, compute, (zeros, zeros))
    return of_x, jnp.einsum("bnk,bnm->km", units, gradient)


_after_activation.defvjp(_forward, _backward)


# A model's compiled step, and the Keras function that it belongs to, which changes with the model.
STEPS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def predict_batches(model, batches) -> list | None:
    """The outputs of a model for batches of images, or None if Keras has to predict."""
    if model.run_eagerly or not model.jit_compile:
        return None
    model.jax_state_sync()
    model.make_predict_function()
    function, step = STEPS.get(model, (lambda: None, None))
    if function() is not model.predict_function:
        step = jax.jit(_without_state(weakref.ref(model)))
        STEPS[model] = weakref.ref(model.predict_function), step
    weights = model.trainable_variables, model.non_trainable_variables
    state = tuple([variable.value for variable in variables] for variables in weights)
    return [step(state, batch) for batch in batches]


def _without_state(model):
    """A model's step that returns only outputs; Keras' function returns all weights as well."""
    return lambda state, batch: model().predict_step(state, (batch,))[0]


def update_if(condition, update, otherwise, variables):
    """Calls `update()` if `condition` holds, else `otherwise()`; both assign to `variables`."""

    def values_after(function):
        with keras.StatelessScope([(v, v.value) for v in variables]) as scope:
            function()
        return [scope.get_current_value(v) for v in variables]

    values = ops.cond(condition, lambda: values_after(update), lambda: values_after(otherwise))
    for variable, value in zip(variables, values):
        variable.assign(value)


def gradients(function, tensors):
    """The gradients of the number `function(*tensors)` with respect to each tensor."""
    return jax.grad(function, argnums=tuple(range(len(tensors))))(*tensors)


def on_host(function, tensors):
    """Applies `function` to NumPy arrays; its result, int32, has the shape of the last tensor."""
    result = jax.ShapeDtypeStruct(tensors[-1].shape, "int32")
    return jax.pure_callback(function, result, *tensors)
