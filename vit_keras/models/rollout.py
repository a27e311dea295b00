"""Attention rollout: the way of attention from the last layer back to the image."""

from collections.abc import Callable

import numpy as np

from vit_keras.layers.base import check_choice

HEADS: dict[str, Callable] = {"mean": np.mean, "max": np.max}


def attention_rollout(attention: np.ndarray, heads: str = "mean") -> np.ndarray:
    """Computes how much of each input token reaches each token of the last layer.

    Attention rollout (Abnar & Zuidema, arXiv 2005.00928) joins the heads of each layer, adds the
    identity for the residual connection, scales the rows to sum to 1, and multiplies the layers.

    Args:
        attention: Attention weights `(B, L, H, N, N)` of images, layers, heads, queries and keys,
            as the model of `attention_maps` puts them out.
        heads: How to join the heads: by their "mean" or their "max".

    Returns:
        An array `(B, N, N)` whose rows sum to 1. Row q belongs to token q of the last layer.

    Raises:
        ValueError: `heads` is neither "mean" nor "max".

    Example:
        >>> attention = attention_maps(model).predict(images)
        >>> attention_rollout(attention)[:, 0, 1:]  # from the class token to the patches
    """
    check_choice(heads, HEADS, "heads")
    joined = HEADS[heads](np.asarray(attention, "float64"), axis=2)  # (B, L, N, N)
    joined = joined + np.eye(joined.shape[-1])
    joined /= joined.sum(axis=-1, keepdims=True)
    flow = joined[:, 0]
    for layer in range(1, joined.shape[1]):
        flow = joined[:, layer] @ flow
    return flow
