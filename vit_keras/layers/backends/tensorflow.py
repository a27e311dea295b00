"""TensorFlow's own code: GELU, normalization, long sequences and updates.

TensorFlow runs every operator as a pass over memory and keeps what the gradient needs. This code
keeps only the input; GELU and its gradient, eleven operators, are compiled into one pass each.
Attention of long sequences is computed in blocks of queries: only the weights of one head's block
exist at a time, and the gradient computes them again (arXiv 2205.14135).
"""

import functools

import tensorflow as tf

from vit_keras.layers import backends
from vit_keras.layers.backends import divide, is_long

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

    def normalize(x, gamma, beta):
        centered, _, scale = _moments(x, epsilon)
        return centered * scale * gamma + beta

    @tf.custom_gradient  # tf.recompute_grad has no second derivative
    def recomputed(*tensors):
        def gradient(upstream):
            with tf.control_dependencies([upstream]), tf.GradientTape() as tape:
                tape.watch(tensors)  # without the dependency, the forward pass keeps the moments
                y = normalize(*tensors)
            return tape.gradient(y, tensors, upstream)

        return normalize(*tensors), gradient

    return _exactly(recomputed, x, gamma, beta)


def _exactly(normalize, x, *weights):
    return tf.cast(normalize(*(tf.cast(v, _exact(x)) for v in (x, *weights))), x.dtype)


def _moments(x, epsilon):
    """`x` with mean 0 along the last axis, the mean, and 1 / the standard deviation."""
    mean = tf.reduce_mean(x, axis=-1, keepdims=True)
    centered = x - mean
    square = tf.reduce_mean(centered * centered, axis=-1, keepdims=True)
    return centered, mean, tf.math.rsqrt(square + epsilon)


def _in_one_pass(function):
    """Compiles a function of x, and its gradient, which computes the function again."""
    compute = compiled(lambda x: tf.cast(function(tf.cast(x, _exact(x))), x.dtype))

    @compiled
    def gradient(x, upstream):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = compute(x)
        return tape.gradient(y, x, upstream)

    return tf.custom_gradient(lambda x: (compute(x), functools.partial(gradient, x)))


gelu = _in_one_pass(functools.partial(tf.nn.gelu, approximate=False))
gelu_tanh = _in_one_pass(functools.partial(tf.nn.gelu, approximate=True))


def global_norm(tensors):
    """The norm of all `tensors` together, in float32."""
    return tf.linalg.global_norm([tf.cast(x, tf.float32) for x in tensors])


def adamw_update(
    weights, gradients, momentums, velocities, update, *, rate, weight_decay, betas, epsilon
):
    """Applies AdamW's update number `update` with TensorFlow's own operator.

    An update made of basic operators takes 30 of them, each a pass over memory.
    """
    for weight, gradient, momentum, velocity in zip(weights, gradients, momentums, velocities):
        if weight_decay:
            weight.assign((1 - rate * weight_decay) * weight)
        number = tf.cast(update, weight.dtype)
        power_1, power_2 = (tf.pow(tf.cast(beta, weight.dtype), number) for beta in betas)
        handles = {"var": weight.handle, "m": momentum.value.handle, "v": velocity.value.handle}
        rates = {"lr": rate, "beta1": betas[0], "beta2": betas[1]}
        rates |= {"beta1_power": power_1, "beta2_power": power_2}
        scaled = epsilon * tf.sqrt(1 - power_2)  # the operator adds it to √v, not to √v̂
        tf.raw_ops.ResourceApplyAdam(**handles, **rates, epsilon=scaled, grad=gradient)


def attention(query, key, value, scale):
    """softmax(scale q kᵀ) v of `(B, N, H, d)`; None for short sequences."""
    if is_long(query.shape[1], key.shape[1]):
        return blockwise(query, key, value, scale)
    return None


def blockwise(query, key, value, scale):
    """softmax(scale q kᵀ) v of `(B, N, H, d)`, in blocks of queries: `(B, N, H, d)`."""

    @tf.custom_gradient
    def attend(query, key, value):
        x = _forward(query, key, value, scale)
        return x, functools.partial(_backward, query, key, value, scale, x)

    return attend(query, key, value)


def _forward(query, key, value, scale):
    def of_head(tensors):
        query, key, value = tensors  # (N, d)

        def of_block(blocks):
            weights = _weights(blocks[0] * scale, key)
            return [tf.matmul(tf.cast(weights, value.dtype), value)]

        blocks = _blocks(query)
        (x,) = _map(of_block, [blocks], blocks[0])
        return [_tokens(x, query.shape[0])]

    tensors = [_heads(y) for y in (query, key, value)]
    (x,) = _map(of_head, tensors, tensors[0][0])
    return _ungrouped(x, query.shape[2])


def _backward(query, key, value, scale, x, gradient):
    exact = _exact(query)
    with tf.control_dependencies([gradient]):  # otherwise the forward pass computes and keeps it
        tensors = [_heads(y) for y in (query, key, value)]
    products = tf.reduce_sum(tf.cast(gradient * x, exact), -1, keepdims=True)  # (B, N, H, 1)

    def of_head(tensors):
        query, key, value, *others = tensors

        def of_block(blocks):
            query, gradient, products = blocks
            query = query * scale
            weights = _weights(query, key)
            logits = tf.cast(tf.matmul(gradient, value, transpose_b=True), exact)
            logits = weights * (logits - products)  # their gradient
            weights, logits = tf.cast(weights, value.dtype), tf.cast(logits, key.dtype)
            return [
                tf.matmul(logits, key) * scale,
                tf.cast(tf.matmul(logits, query, transpose_a=True), exact),
                tf.cast(tf.matmul(weights, gradient, transpose_a=True), exact),
            ]

        blocks, wide = [_blocks(y) for y in (query, *others)], tf.cast(key, exact)
        query_gradient, *of_blocks = _map(of_block, blocks, blocks[0][0], wide, wide)
        summed = [tf.cast(tf.reduce_sum(y, 0), key.dtype) for y in of_blocks]
        return [_tokens(query_gradient, query.shape[0]), *summed]

    results = [y[0] for y in tensors]
    gradients = _map(of_head, [*tensors, _heads(gradient), _heads(products)], *results)
    return [_ungrouped(y, query.shape[2]) for y in gradients]


def _map(function, tensors, *results):
    """Calls `function` for each index of the first axis of `tensors`, one after the other.

    `function` takes a list of tensors, and returns a list of tensors like `results`.
    """
    like = [tf.TensorSpec(result.shape, result.dtype) for result in results]
    return tf.map_fn(function, tensors, fn_output_signature=like, parallel_iterations=1)


def _weights(query, key):
    """softmax(q kᵀ) of `(…, Q, d)` and `(…, N, d)`, in at least float32."""
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
    """`(N, d)` -> `(blocks, Q, d)`; zeros fill the last block.

    All blocks have the same size, as XLA requires. A block is twice as large as on JAX, because
    each block costs another round of operator calls here.
    """
    count, size = divide(x.shape[0], 2 * backends.BLOCK)
    return tf.reshape(tf.pad(x, ((0, count * size - x.shape[0]), (0, 0))), (count, size, -1))


def _tokens(blocks, tokens):
    """`(blocks, Q, d)` -> `(N, d)`."""
    return tf.reshape(blocks, (-1, blocks.shape[2]))[:tokens]


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
