"""Attention from the last layer back to the image, of what `attention_maps` gives."""

import numpy as np

from vit_keras.layers.base import check_choice

HEADS = {"mean": np.mean, "max": np.max}


def attention_rollout(attention: np.ndarray, heads: str = "mean") -> np.ndarray:
    """How much of each input token is in each token of the last layer, `(B, N, N)`; rows sum to 1.

    Abnar & Zuidema (arXiv 2005.00928): heads are joined by their "mean" or "max", the identity is
    added for the residual connection, rows are scaled to sum to 1, and layers are multiplied.
    """
    check_choice(heads, HEADS, "heads")
    joined = HEADS[heads](np.asarray(attention, "float64"), axis=2)  # (B, L, N, N)
    joined = joined + np.eye(joined.shape[-1])
    joined /= joined.sum(axis=-1, keepdims=True)
    flow = joined[:, 0]
    for layer in range(1, joined.shape[1]):
        flow = joined[:, layer] @ flow
    return flow
