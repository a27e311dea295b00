"""Weights of trained layers with scales and offsets folded in, for inference layers."""

import keras
import numpy as np


def array(variable) -> np.ndarray:
    """A float32 copy of a variable's value, which the variable's model does not share."""
    return np.array(keras.ops.convert_to_numpy(variable), "float32")


def fold(norm, kernels, biases) -> list[np.ndarray]:
    """The kernel `(D, K)` and bias `(K,)` of products that hold a normalization's affine map.

    Args:
        norm: The normalization before the products, with `gamma` and `beta` `(D,)`.
        kernels: Kernels `(D, K_i)`, which are concatenated.
        biases: Their biases `(K_i,)`.
    """
    kernel, bias = np.concatenate(kernels, axis=-1), np.concatenate(biases, axis=-1)
    return [array(norm.gamma)[:, None] * kernel, bias + array(norm.beta) @ kernel]


def matrix(projection, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """The kernel `(D, D)` and bias `(D,)` of attention's query, key or value, times `scale`."""
    kernel, bias = array(projection.kernel), array(projection.bias)
    return kernel.reshape(len(kernel), -1) * scale, bias.reshape(-1) * scale
