"""All that `kernels.measure` times on torch."""

import keras

from vit_keras.layers.kernels import torch_attention, torch_products
from vit_keras.layers.kernels.torch_choices import concerns


def measure() -> dict[str, dict[str, bool]]:
    """The faster implementations on this machine; {} where models run on an accelerator."""
    if not concerns(keras.ops.zeros(())):
        return {}
    return {
        "torch_products": torch_products.measure(),
        "torch_attention": torch_attention.measure(),
    }
