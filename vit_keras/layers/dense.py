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
    """`keras.layers.Dense` on rows: `(M, K)` -> `(M, units)`."""

    def call(self, inputs, training=None):
        if keras.backend.backend() == "torch":
            return linear(inputs, self.kernel, self.bias, self.activation)
        if training and keras.backend.backend() == "tensorflow":
            from vit_keras.layers import tensorflow_gelu

            trained = {gelu: tensorflow_gelu.gelu, gelu_tanh: tensorflow_gelu.gelu_tanh}
            activation = trained.get(self.activation, self.activation)
            return linear(inputs, self.kernel, self.bias, activation)
        return super().call(inputs)


class HeadsDense(keras.layers.EinsumDense):
    """`keras.layers.EinsumDense` with the kernel `(D, H, d)`, or `(H, d, D)`, as one matrix.

    `(M, D)` -> `(M, H, d)`, or `(M, H, d)` -> `(M, D)`: the equation says which.
    """

    def call(self, inputs, training=None):
        kernel, bias = ops.convert_to_tensor(self.kernel), ops.convert_to_tensor(self.bias)
        size = math.prod(inputs.shape[1:])
        x = ops.reshape(inputs, (-1, size))
        x = linear(x, ops.reshape(kernel, (size, -1)), ops.reshape(bias, (-1,)))
        return ops.reshape(x, (-1, *bias.shape))


def linear(x, kernel, bias, activation=None):
    """activation(x kernel + bias) of `(M, K)`, `(K, N)` and `(N,)`: `(M, N)`."""
    if keras.backend.backend() == "torch":
        from vit_keras.layers import torch_products

        tensors = (ops.convert_to_tensor(value) for value in (x, kernel, bias))
        return torch_products.linear(*tensors, activation)
    x = ops.matmul(x, kernel) + bias
    return x if activation is None else activation(x)
