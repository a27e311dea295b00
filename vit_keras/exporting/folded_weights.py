"""Weights of trained layers with scales and offsets folded in, for inference layers."""

import keras
import numpy as np


def array(variable) -> np.ndarray:
    """Returns a float32 copy of a variable's value that shares no memory with the model."""
    return np.array(keras.ops.convert_to_numpy(variable), "float32")


def fold(norm, kernels, biases) -> list[np.ndarray]:
    """Folds a normalization's affine map into a kernel `(D, K)` and a bias `(K,)`.

    Args:
        norm: The normalization before the products, with `gamma` and `beta` `(D,)`, or only
            `scale`; None without one.
        kernels: Kernels `(D, K_i)` to concatenate.
        biases: Their biases `(K_i,)`.
    """
    kernel, bias = np.concatenate(kernels, axis=-1), np.concatenate(biases, axis=-1)
    if norm is None:
        return [kernel, bias]
    factor, offset = affine(norm)
    return [factor[:, None] * kernel, bias + offset @ kernel]


def affine(norm) -> tuple[np.ndarray, np.ndarray]:
    """The factor and the offset `(D,)` of a normalization."""
    if isinstance(norm, keras.layers.RMSNormalization):
        factor = array(norm.scale)
        return factor, np.zeros_like(factor)
    return array(norm.gamma), array(norm.beta)


def scaled(weights: list[np.ndarray], layer_scale) -> list[np.ndarray]:
    """Multiplies a kernel `(K, D)` and a bias `(D,)` by a `LayerScale`'s factors, if any."""
    if layer_scale is None:
        return weights
    return [weight * array(layer_scale.gamma) for weight in weights]


def matrix(projection, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Returns kernel `(D, D)` and bias `(D,)` of the query, key or value, times `scale`."""
    kernel = array(projection.kernel)
    kernel = kernel.reshape(len(kernel), -1)
    bias = np.zeros(kernel.shape[1], "float32")
    if projection.bias is not None:
        bias = array(projection.bias).reshape(-1)
    return kernel * scale, bias * scale
