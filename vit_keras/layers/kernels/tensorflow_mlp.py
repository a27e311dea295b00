"""The MLP on TensorFlow in training, which for long sequences keeps fewer hidden units."""

from collections.abc import Callable

import tensorflow as tf

from vit_keras.layers.kernels import activations
from vit_keras.layers.kernels import tensorflow_training as passes
from vit_keras.layers.kernels.long_sequences import is_long

# GELU and its gradient, each compiled into one pass.
FUNCTIONS: dict[Callable, tuple[Callable, Callable]] = {
    activations.gelu: (passes.gelu_pass, passes.gelu_gradient),
    activations.gelu_tanh: (passes.gelu_tanh_pass, passes.gelu_tanh_gradient),
}


def mlp(x, first, second):
    """second(first(x)) of two `Dense` layers in training, `(B, N, D)` -> `(B, N, D)`.

    For long sequences only the input of GELU is kept of the hidden units.
    """
    functions = FUNCTIONS.get(first.activation)
    if functions is None or len(x.shape) != 3 or not is_long(x.shape[1]):
        return second(first(x))
    weights = first.kernel, first.bias, second.kernel, second.bias
    first_kernel, first_bias, kernel, bias = map(tf.convert_to_tensor, weights)
    rows = tf.nn.bias_add(tf.matmul(tf.reshape(x, (-1, x.shape[-1])), first_kernel), first_bias)
    rows = tf.nn.bias_add(_after_gelu(rows, kernel, *functions), bias)
    return tf.reshape(rows, (-1, x.shape[1], bias.shape[0]))


def _after_gelu(rows, kernel, gelu, gelu_gradient):
    """gelu(rows) kernel; the gradient computes gelu(rows) again."""

    @tf.custom_gradient
    def multiply(rows, kernel):
        def gradient(upstream):
            into = gelu_gradient(rows, tf.matmul(upstream, kernel, transpose_b=True))
            with tf.control_dependencies([upstream]):  # else the forward pass keeps it
                units = gelu(rows)
            return into, tf.matmul(units, upstream, transpose_a=True)

        return tf.matmul(gelu(rows), kernel), gradient

    return multiply(rows, kernel)
