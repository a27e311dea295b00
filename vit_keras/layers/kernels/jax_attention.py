"""Attention on JAX."""

import keras
from keras import ops


def attention(query, key, value, scale):
    """softmax(scale q kᵀ) v of `(B, N, H, d)` by one kernel on accelerators; None on CPUs.

    XLA's own attention has no float16 on CPUs, and the sum that the layer writes out is faster.
    """
    if all(device.startswith("cpu") for device in keras.distribution.list_devices()):
        return None
    return ops.dot_product_attention(query, key, value, scale=scale)
