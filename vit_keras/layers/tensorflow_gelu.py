"""GELU on TensorFlow with gradients of their own, for training.

TensorFlow runs every operator as a pass over memory and keeps what its gradient asks for; what it
derives takes twice as many passes as the formulas.
"""

import math

import tensorflow as tf


@tf.custom_gradient
def gelu(x):
    """x Φ(x) by erf; its gradient is Φ(x) + x φ(x)."""
    probability = 0.5 * tf.math.erfc(_constant(-math.sqrt(0.5), x) * x)

    def gradient(upstream):
        density = _constant(1 / math.sqrt(2 * math.pi), x) * tf.exp(-0.5 * tf.square(x))
        return upstream * (probability + x * density)

    return x * probability, gradient


@tf.custom_gradient
def gelu_tanh(x):
    """x (1 + t) / 2, t = tanh(√(2/π) (x + 0.044715 x³)); its gradient is (1 + t) / 2 + x t' / 2."""
    scale = _constant(math.sqrt(2 / math.pi), x)
    t = tf.tanh(scale * x * (1 + 0.044715 * tf.square(x)))

    def gradient(upstream):
        slope = scale * (1 - tf.square(t)) * (1 + 0.134145 * tf.square(x))
        return upstream * (0.5 * (1 + t + x * slope))

    return 0.5 * x * (1 + t), gradient


def _constant(value, like):
    return tf.cast(value, like.dtype)
