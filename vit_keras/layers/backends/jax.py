"""JAX's own code: long sequences on CPUs, and prediction steps.

With explicit products, XLA keeps all attention weights: a number for each head and pair of tokens.
In blocks, only the weights of one head's block exist at a time. Only q, k, v, the result
and a logarithm for each query are kept, and the gradient computes the weights again (arXiv
2205.14135). XLA also keeps several arrays of a normalization and of GELU; for long sequences, this
module keeps only their inputs.
"""

import functools
import weakref

import jax
import jax.numpy as jnp
import keras
from keras import ops

from vit_keras.layers.backends import divide, is_long


def attention(query, key, value, scale):
    """softmax(scale q kᵀ) v of `(B, N, H, d)`; None for short sequences on CPUs.

    XLA's own attention has no float16 on CPUs, and the layer's explicit sum is faster.
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
    """softmax(scale q kᵀ) v, in blocks of queries; operands and result are `(B, N, H, d)`."""
    return jnp.reshape(_attend(query, key, value, scale), query.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _attend(query, key, value, scale):
    """The result as `(B, N, D)`, so that it shares one array with the rows of the next product."""
    return _forward(query, key, value, scale)[0]


def _forward(query, key, value, scale):
    key, value, queries = _groups(key), _groups(value), _blocks(query)
    count = queries.shape[1]

    def of_block(i, results):
        group, block = i // count, i % count
        logits = _logits(queries[group, block] * scale, key[group])  # (B, G, Q, N)
        most = jnp.max(logits, axis=-1, keepdims=True)
        numerators = jnp.exp(logits - most)
        total = jnp.sum(numerators, axis=-1, keepdims=True)
        x = _product("bgqn,bgnd->bgqd", numerators.astype(value.dtype), value[group]) / total
        of_queries = x.astype(query.dtype), most + jnp.log(total)
        return tuple(y.at[group, block].set(z) for y, z in zip(results, of_queries))

    logarithms = jnp.zeros((*queries.shape[:-1], 1), exact(query))
    results = wait(queries, jnp.zeros_like(queries), logarithms)
    x, logarithms = jax.lax.fori_loop(0, len(queries) * count, of_block, results)
    x = _tokens(x, query.shape[1])
    return x, (queries, key, value, x, logarithms)


def _backward(scale, kept, gradient):
    queries, key, value, x, logarithms = kept  # key and value are (groups, B, G, N, d)
    shape = (*x.shape[:2], -1, key.shape[-1])
    gradient, x = jnp.reshape(gradient, shape), jnp.reshape(x, shape)
    sums = _blocks(jnp.sum((gradient * x).astype(exact(x)), axis=-1, keepdims=True))
    gradients = _blocks(gradient)

    def of_group(group, results):
        key_of_group, value_of_group = key[group], value[group]

        def of_block(i, results):
            query_gradients, key_gradient, value_gradient = results
            query, gradient = queries[group, i] * scale, gradients[group, i]
            weights = jnp.exp(_logits(query, key_of_group) - logarithms[group, i])
            logits = weights * (_logits(gradient, value_of_group) - sums[group, i])
            weights, logits = weights.astype(value.dtype), logits.astype(key.dtype)
            block = scale * _product("bgqn,bgnd->bgqd", logits, key_of_group)
            return (
                query_gradients.at[group, i].set(block.astype(query.dtype)),
                key_gradient + _product("bgqn,bgqd->bgnd", logits, query),
                value_gradient + _product("bgqn,bgqd->bgnd", weights, gradient),
            )

        query_gradients, *others = results
        zeros = jnp.zeros(key.shape[1:], exact(key))
        of_queries, *of_others = jax.lax.fori_loop(
            0, queries.shape[1], of_block, (query_gradients, zeros, zeros)
        )
        others = (y.at[group].set(z.astype(y.dtype)) for y, z in zip(others, of_others))
        return of_queries, *others

    results = wait(gradient, *map(jnp.zeros_like, (queries, key, value)))
    query_gradients, *others = jax.lax.fori_loop(0, len(key), of_group, results)
    others = (_ungrouped(other) for other in others)
    return jnp.reshape(_tokens(query_gradients, x.shape[1]), shape), *others


_attend.defvjp(_forward, _backward)


def wait(after, *tensors):
    """Makes XLA compute `tensors` after `after`, by adding one number of `after`, times 0, to each.

    XLA first computes everything that needs no data, such as zeros, and keeps it until it is used.
    """
    nothing = 0 * after.ravel()[0]
    return tuple(x + nothing.astype(x.dtype) for x in tensors)


def exact(x):
    """The type for sums: at least float32."""
    return jnp.promote_types(x.dtype, jnp.float32)


def _product(equation, x, y):
    """A product of tensors in at least float32."""
    return jnp.einsum(equation, x, y, preferred_element_type=exact(x))


_logits = functools.partial(_product, "bgqd,bgnd->bgqn")


def _groups(x):
    """`(B, N, H, d)` -> `(groups, B, G, N, d)`, each group of G heads."""
    images, tokens, heads, width = x.shape
    # One head, so that blocks fit into a processor's caches, or all if devices share the heads.
    shares_heads = isinstance(keras.distribution.distribution(), keras.distribution.ModelParallel)
    size = heads if shares_heads else 1
    x = jnp.reshape(x, (images, tokens, heads // size, size, width))
    return jnp.transpose(x, (2, 0, 3, 1, 4))


def _ungrouped(x):
    """`(groups, B, G, N, d)` -> `(B, N, H, d)`."""
    groups, images, size, tokens, width = x.shape
    x = jnp.transpose(x, (1, 3, 0, 2, 4))
    return jnp.reshape(x, (images, tokens, groups * size, width))


def _blocks(x):
    """`(B, N, H, d)` -> `(groups, blocks, B, G, Q, d)`; zeros fill the last block.

    Loops run over only the first two axes, because devices may share the images or the heads.
    """
    count, size = divide(x.shape[1])
    x = _groups(jnp.pad(x, ((0, 0), (0, count * size - x.shape[1]), (0, 0), (0, 0))))
    x = jnp.reshape(x, (*x.shape[:3], count, size, x.shape[4]))
    return jnp.transpose(x, (0, 3, 1, 2, 4, 5))


def _tokens(blocks, tokens):
    """`(groups, blocks, B, G, Q, d)` -> `(B, N, D)`."""
    x = jnp.transpose(blocks, (2, 1, 4, 0, 3, 5))
    return jnp.reshape(x, (x.shape[0], x.shape[1] * x.shape[2], -1))[:, :tokens]


def train_layer_norm(x, gamma, beta, epsilon: float):
    """LN(x) γ + β over the last axis of `(…, D)`."""
    gamma, beta = ops.convert_to_tensor(gamma), ops.convert_to_tensor(beta)
    normalize = _layer_norm if _is_long(x) else _portable_layer_norm
    return normalize(x, gamma, beta, epsilon)


def mlp(x, first, second):
    """second(first(x)) of two `Dense` layers in training, `(B, N, D)` -> `(B, N, D)`.

    For long sequences only the activation's input is kept, not the hidden units.
    """
    if not _is_long(x):
        return second(first(x))
    weights = first.kernel, first.bias, second.kernel, second.bias
    first_kernel, first_bias, kernel, bias = map(ops.convert_to_tensor, weights)
    return _after_activation(x @ first_kernel + first_bias, kernel, first.activation) + bias


def _is_long(x) -> bool:
    return x.ndim == 3 and is_long(x.shape[1]) and on_cpus()


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _after_activation(x, kernel, activation):
    """activation(x) @ kernel, `(B, N, K)` and `(K, M)`; the gradient recomputes the units."""
    return activation(x) @ kernel


def _after_activation_backward(activation, kept, gradient):
    x, kernel = kept

    def activate(x, gradient):
        """The activation of rows, and the gradient with respect to the rows."""
        y, pull = jax.vjp(activation, x)
        return y, *pull(gradient)

    units, into = by_blocks(activate, x, gradient @ kernel.T)
    return into, jnp.einsum("bnk,bnm->km", units, gradient)


_after_activation.defvjp(
    lambda x, kernel, activation: (activation(x) @ kernel, (x, kernel)), _after_activation_backward
)


def _portable_layer_norm(x, gamma, beta, epsilon):
    return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)


_layer_norm = jax.custom_vjp(_portable_layer_norm, nondiff_argnums=(3,))


def _layer_norm_backward(epsilon, kept, gradient):
    x, gamma, beta = kept
    wide = exact(x)

    def of_rows(x, gradient):
        """The gradient with respect to rows, and the rows with mean 0 and variance 1."""
        scaled, x = gradient.astype(wide) * gamma, x.astype(wide)
        x = x - jnp.mean(x, -1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + epsilon)
        normal = x * scale
        common = jnp.mean(scaled * normal, -1, keepdims=True)
        return (scaled - jnp.mean(scaled, -1, keepdims=True) - normal * common) * scale, normal

    rows, normal = by_blocks(of_rows, x, gradient)
    gamma_gradient = jnp.sum(gradient * normal, (0, 1)).astype(gamma.dtype)
    beta_gradient = jnp.sum(gradient.astype(wide), (0, 1)).astype(beta.dtype)
    return rows.astype(x.dtype), gamma_gradient, beta_gradient


_layer_norm.defvjp(
    lambda *arguments: (_portable_layer_norm(*arguments), arguments[:3]), _layer_norm_backward
)


def by_blocks(function, *tensors):
    """Computes `function(*tensors)` of tensors `(B, N, …)` in independent blocks of tokens.

    The blocks run in a loop because XLA would otherwise compute what it can before the backward
    pass, and keep it. The last block starts early enough to be full, so it computes some rows
    again.
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
