"""Weights of a trained layer as those of an inference layer: scales and offsets folded in."""

import keras
import numpy as np


def array(variable) -> np.ndarray:
    """A copy of a variable's value: what two models shared, one could take from the other."""
    return np.array(keras.ops.convert_to_numpy(variable), "float32")


def fold(norm, kernels, biases) -> list[np.ndarray]:
    """Kernel `(D, K)` and bias of the product that follows a normalisation, with its affine map."""
    kernel, bias = np.concatenate(kernels, axis=-1), np.concatenate(biases, axis=-1)
    return [array(norm.gamma)[:, None] * kernel, bias + array(norm.beta) @ kernel]


def matrix(projection, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Kernel `(D, D)` and bias `(D,)` of one of attention's query, key and value."""
    kernel, bias = array(projection.kernel), array(projection.bias)
    return kernel.reshape(len(kernel), -1) * scale, bias.reshape(-1) * scale
