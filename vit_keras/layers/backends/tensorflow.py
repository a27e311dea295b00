"""TensorFlow's own code: GELU, normalization, long sequences and updates.

TensorFlow runs every operator as a pass over memory and keeps what the gradient needs. This code
keeps only the input; GELU and its gradient, eleven operators, are compiled into one pass each.
"""

import functools

import tensorflow as tf

from vit_keras.layers.backends import long_sequences

compiled = functools.partial(tf.function, jit_compile=True, reduce_retracing=True)


def layer_norm(x, gamma, beta, epsilon: float):
    """LN(x) γ + β over the last axis, in at least float32.

    NPU compilers support all of its operators, but not all those in Keras' formula. β is not added
    last: LiteRT's converter would move it behind the next product, and int8 would represent the
    range of that product's input less well.
    """

    def normalize(x, gamma, beta):
        _, mean, scale = _moments(x, epsilon)
        return x * (scale * gamma) + (beta - mean * (scale * gamma))

    return _exactly(normalize, x, gamma, beta)


def train_layer_norm(x, gamma, beta, epsilon: float):
    """Like `layer_norm`, but the gradient computes the moments again."""

    @tf.custom_gradient
    def normalize(x, gamma, beta):
        def gradient(upstream):
            with tf.control_dependencies([upstream]):  # otherwise the forward pass keeps it
                centered, _, scale = _moments(x, epsilon)
            normal = centered * scale
            scaled = upstream * gamma
            mean = tf.reduce_mean(scaled, axis=-1, keepdims=True)
            common = tf.reduce_mean(scaled * normal, axis=-1, keepdims=True)
            rows = list(range(len(x.shape) - 1))
            gamma_gradient = tf.reduce_sum(upstream * normal, rows)
            beta_gradient = tf.reduce_sum(upstream, rows)
            return (scaled - mean - normal * common) * scale, gamma_gradient, beta_gradient

        centered, _, scale = _moments(x, epsilon)
        return centered * scale * gamma + beta, gradient

    return _exactly(normalize, x, gamma, beta)


def _exactly(normalize, x, *weights):
    exact = tf.float64 if x.dtype == tf.float64 else tf.float32
    return tf.cast(normalize(*(tf.cast(v, exact) for v in (x, *weights))), x.dtype)


def _moments(x, epsilon):
    """`x` with mean 0 along the last axis, the mean, and 1 / the standard deviation."""
    mean = tf.reduce_mean(x, axis=-1, keepdims=True)
    centered = x - mean
    square = tf.reduce_mean(centered * centered, axis=-1, keepdims=True)
    return centered, mean, tf.math.rsqrt(square + epsilon)


def _in_one_pass(compute):
    """Compiles a function of x, and its gradient, which computes the function again."""

    @compiled
    def gradient(x, upstream):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = compute(x)
        return tape.gradient(y, x, upstream)

    whole = compiled(compute)
    return tf.custom_gradient(lambda x: (whole(x), functools.partial(gradient, x)))


gelu = _in_one_pass(functools.partial(tf.nn.gelu, approximate=False))
gelu_tanh = _in_one_pass(functools.partial(tf.nn.gelu, approximate=True))


def global_norm(tensors):
    """The norm of all `tensors` together, in float32."""
    return tf.linalg.global_norm([tf.cast(x, tf.float32) for x in tensors])


def adamw_update(
    weights, gradients, momentums, velocities, update, *, rate, weight_decay, betas, epsilon
):
    """Applies the `update`th update by AdamW with TensorFlow's own operator.

    Composed of basic operators, an update takes 30 of them, each a pass over memory.
    """
    for weight, gradient, momentum, velocity in zip(weights, gradients, momentums, velocities):
        if weight_decay:
            weight.assign((1 - rate * weight_decay) * weight)
        number = tf.cast(update, weight.dtype)
        power_1, power_2 = (tf.pow(tf.cast(beta, weight.dtype), number) for beta in betas)
        tf.raw_ops.ResourceApplyAdam(
            var=weight.handle,
            m=momentum.value.handle,
            v=velocity.value.handle,
            beta1_power=power_1,
            beta2_power=power_2,
            lr=rate,
            beta1=betas[0],
            beta2=betas[1],
            epsilon=epsilon * tf.sqrt(1 - power_2),  # the operator adds it to √v, not to √v̂
            grad=gradient,
        )


def attention(query, key, value, scale):
    """softmax(scale q kᵀ) v of `(B, N, H, d)`; None for short sequences."""
    if long_sequences.is_long(query.shape[1], key.shape[1]):
        # Each block costs another round of operator calls, so blocks are larger than on JAX.
        return long_sequences.blockwise(query, key, value, scale, _map, 2 * long_sequences.BLOCK)
    return None


def _map(function, tensors):
    """Calls `function` for each index of the first axis, one after the other."""
    first = tf.nest.flatten(tensors)[0]
    like = tf.TensorSpec(first.shape[1:], first.dtype)
    return tf.map_fn(function, tensors, fn_output_signature=like, parallel_iterations=1)


def predict_batches(model, batches) -> list | None:
    """The outputs of a model for batches of images, or None if Keras has to predict."""
    if model.distribute_strategy.num_replicas_in_sync > 1:
        return None
    model.make_predict_function()
    return [model.predict_function([(batch,)]) for batch in batches]


def gradients(function, tensors):
    """The gradients of the number `function(*tensors)` with respect to each tensor."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(tensors)
        value = function(*tensors)
    return tape.gradient(value, tensors)


def on_host(function, tensors):
    """Applies `function` to NumPy arrays; its result, int32, has the shape of the last tensor."""
    result = tf.numpy_function(function, tensors, tf.int32)
    return tf.ensure_shape(result, tensors[-1].shape)
