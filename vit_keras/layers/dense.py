"""Dense layers whose product is the fastest that the backend has; see `torch_products`."""

import math

import keras
from keras import ops


def gelu(x):
    """x Φ(x), by erf."""
    return ops.gelu(x, approximate=False)


def gelu_tanh(x):
    """The approximation of the published Flax code."""
    return ops.gelu(x, approximate=True)


GELUS = {"exact": gelu, "tanh": gelu_tanh}


class Dense(keras.layers.Dense):
    """`keras.layers.Dense` of `(…, K)` -> `(…, units)`."""

    def call(self, inputs, training=None):
        activation = self.activation
        if training and keras.backend.backend() == "tensorflow":
            from vit_keras.layers.kernels import tensorflow_training

            trained = {gelu: tensorflow_training.gelu, gelu_tanh: tensorflow_training.gelu_tanh}
            activation = trained.get(activation, activation)
        return linear(inputs, self.kernel, self.bias, activation)


class HeadsDense(keras.layers.EinsumDense):
    """`keras.layers.EinsumDense` with the kernel `(D, H, d)`, or `(H, d, D)`, as one matrix.

    `(B, N, D)` -> `(B, N, H, d)`, or `(B, N, H, d)` -> `(B, N, D)`: the equation says which.
    """

    def call(self, inputs, training=None):
        return linear(inputs, self.kernel, self.bias)


def linear(x, kernel, bias, activation=None):
    """activation(x kernel + bias), `(B, …, *K)` -> `(B, …, *N)` by a kernel `(*K, *N)`.

    The bias is `(*N,)`. All rows are one large product, not one of each image: on CPUs its
    gradient takes two thirds of the time.
    """
    kernel, bias = ops.convert_to_tensor(kernel), ops.convert_to_tensor(bias)
    if keras.backend.backend() == "torch":
        from vit_keras.layers.kernels import torch_products

        return torch_products.linear(ops.convert_to_tensor(x), kernel, bias, activation)
    summed = len(kernel.shape) - len(bias.shape)
    size = math.prod(kernel.shape[:summed])
    shape = (-1, *x.shape[1 : len(x.shape) - summed], *bias.shape)
    if len(kernel.shape) > 2:
        kernel = ops.reshape(kernel, (size, -1))
    if len(bias.shape) > 1:
        bias = ops.reshape(bias, (-1,))
    y = ops.matmul(ops.reshape(x, (-1, size)), kernel)
    y = ops.add(y, bias)  # TensorFlow's bias_add, which it makes part of the product; + is not
    return ops.reshape(y if activation is None else activation(y), shape)
