"""Dense layers that multiply all tokens of a batch at once."""

import math

import keras
from keras import ops

from vit_keras.layers import backends
from vit_keras.layers.backends.activations import GELUS, gelu, gelu_quick, gelu_tanh
from vit_keras.layers.low_rank import LowRankKernel

__all__ = ["GELUS", "Dense", "HeadsDense", "gelu", "gelu_quick", "gelu_tanh", "linear"]
IN_TRAINING = {
    gelu: backends.lookup("train_gelu", gelu),
    gelu_tanh: backends.lookup("train_gelu_tanh", gelu_tanh),
}


@backends.dispatch("affine")
def affine(rows, kernel, bias, tokens):
    """rows kernel + bias of `(R, K)`, `(K, M)` and `(M,)` or None, for images of some tokens."""
    y = ops.matmul(rows, kernel)
    # ops.add is TensorFlow's bias_add, which it makes part of the product; + is not.
    return y if bias is None else ops.add(y, bias)


@backends.dispatch("linear")
def linear(x, kernel, bias, activation=None):
    """Computes activation(x kernel + bias) as one product of all rows.

    On CPUs the gradient of one large product takes two thirds of the time that a product for each
    image takes.

    Args:
        x: `(B, …, *K)`.
        kernel: `(*K, *N)`.
        bias: `(*N,)`; None sums over one axis of the kernel, without a bias.
        activation: A function of a tensor, or None.

    Returns:
        A tensor `(B, …, *N)`.
    """
    kernel = ops.convert_to_tensor(kernel)
    summed = 1 if bias is None else len(kernel.shape) - len(bias.shape)
    size = math.prod(kernel.shape[:summed])
    shape = (-1, *x.shape[1 : len(x.shape) - summed], *kernel.shape[summed:])
    if len(kernel.shape) > 2:
        kernel = ops.reshape(kernel, (size, -1))
    if bias is not None:
        bias = ops.reshape(bias, (-1,)) if len(bias.shape) > 1 else ops.convert_to_tensor(bias)
    tokens = x.shape[1] if len(x.shape) > 2 else 1
    y = affine(ops.reshape(x, (-1, size)), kernel, bias, tokens)
    return ops.reshape(y if activation is None else activation(y), shape)


class Dense(LowRankKernel, keras.layers.Dense):
    """`keras.layers.Dense` by `linear`: `(…, K)` -> `(…, units)`."""

    def call(self, inputs, training=None):
        activation = self.activation
        if training:
            activation = IN_TRAINING.get(activation, activation)
        return linear(inputs, self.kernel, self.bias, activation)


class HeadsDense(LowRankKernel, keras.layers.EinsumDense):
    """`keras.layers.EinsumDense` by `linear`, to or from attention heads.

    The equation says which: `(B, N, D)` -> `(B, N, H, d)` with a kernel `(D, H, d)`, or
    `(B, N, H, d)` -> `(B, N, D)` with a kernel `(H, d, D)`.
    """

    def call(self, inputs, training=None):
        return linear(inputs, self.kernel, self.bias)
