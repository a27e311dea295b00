"""Training on TensorFlow: GELU and layer normalization with gradients of their own, and updates.

TensorFlow runs every operator as a pass over memory and keeps what the gradient needs. Here it
keeps the input alone; GELU and its gradient, eleven operators, are compiled into a pass each.
"""

import functools
import math

import tensorflow as tf

compiled = functools.partial(tf.function, jit_compile=True, reduce_retracing=True)


@tf.custom_gradient
def gelu(x):
    """x Φ(x) by erf; its gradient is Φ(x) + x φ(x)."""
    return gelu_pass(x), functools.partial(gelu_gradient, x)


@tf.custom_gradient
def gelu_tanh(x):
    """x (1 + t) / 2, t = tanh(√(2/π) (x + 0.044715 x³)); its gradient is (1 + t) / 2 + x t' / 2."""
    return gelu_tanh_pass(x), functools.partial(gelu_tanh_gradient, x)


def layer_norm(x, gamma, beta, epsilon: float):
    """LN(x) γ + β over the last axis, in float32 at least."""

    @tf.custom_gradient
    def normalize(x, gamma, beta):
        def gradient(upstream):
            with tf.control_dependencies([upstream]):  # else the forward pass keeps it
                normal, scale = _normal(x, epsilon)
            scaled = upstream * gamma
            mean = tf.reduce_mean(scaled, axis=-1, keepdims=True)
            common = tf.reduce_mean(scaled * normal, axis=-1, keepdims=True)
            rows = list(range(len(x.shape) - 1))
            gamma_gradient = tf.reduce_sum(upstream * normal, rows)
            beta_gradient = tf.reduce_sum(upstream, rows)
            return (scaled - mean - normal * common) * scale, gamma_gradient, beta_gradient

        return _normal(x, epsilon)[0] * gamma + beta, gradient

    exact = tf.float64 if x.dtype == tf.float64 else tf.float32
    return tf.cast(normalize(*(tf.cast(v, exact) for v in (x, gamma, beta))), x.dtype)


def _normal(x, epsilon):
    """`x` with mean 0 and variance 1 along the last axis, and 1 over its standard deviation."""
    x = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    scale = tf.math.rsqrt(tf.reduce_mean(tf.square(x), axis=-1, keepdims=True) + epsilon)
    return x * scale, scale


@compiled
def gelu_pass(x):
    return x * _probability(x)


@compiled
def gelu_gradient(x, upstream):
    density = _constant(1 / math.sqrt(2 * math.pi), x) * tf.exp(-0.5 * tf.square(x))
    return upstream * (_probability(x) + x * density)


@compiled
def gelu_tanh_pass(x):
    return 0.5 * x * (1 + _tanh(x))


@compiled
def gelu_tanh_gradient(x, upstream):
    t = _tanh(x)
    slope = _constant(math.sqrt(2 / math.pi), x) * (1 - t * t) * (1 + 0.134145 * tf.square(x))
    return upstream * (0.5 * (1 + t + x * slope))


def _probability(x):
    """Φ(x)."""
    return 0.5 * tf.math.erfc(_constant(-math.sqrt(0.5), x) * x)


def _tanh(x):
    return tf.tanh(_constant(math.sqrt(2 / math.pi), x) * x * (1 + 0.044715 * tf.square(x)))


def _constant(value, like):
    return tf.cast(value, like.dtype)


def global_norm(tensors):
    """The norm of all `tensors` together, float32."""
    return tf.linalg.global_norm([tf.cast(x, tf.float32) for x in tensors])


def adam_update(variable, gradient, momentum, velocity, update, *, rate, betas, epsilon):
    """The `update`th update by Adam in TensorFlow's own operator.

    Written out, an update takes 30 operators, each a pass over memory.
    """
    power_1, power_2 = (tf.pow(tf.cast(beta, update.dtype), update) for beta in betas)
    tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=momentum.value.handle,
        v=velocity.value.handle,
        beta1_power=power_1,
        beta2_power=power_2,
        lr=rate,
        beta1=betas[0],
        beta2=betas[1],
        epsilon=epsilon * tf.sqrt(1 - power_2),  # which it adds to √v, not to √v̂
        grad=gradient,
    )
