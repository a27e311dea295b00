"""Dense layers that Keras quantized: which they are, and how their parents are saved."""

import re
from typing import Any

import keras

from vit_keras.keras_internals import sublayers


def quantized_mode(layer: keras.layers.Layer) -> str | None:
    """The mode of the first quantized layer in a layer or model, such as "int8", or None."""
    modes = (getattr(below, "quantization_mode", None) for below in sublayers(layer))
    return next(filter(None, modes), None)


def refuse_quantized(model: keras.Model, action: str) -> None:
    """Raises ValueError if `model.quantize` was called, which leaves no kernels to copy."""
    mode = quantized_mode(model)
    if mode is not None:
        raise ValueError(
            f"{action} needs kernels in floating point. Received: model {model.name!r}, quantized "
            f"to {mode!r}. Take the model as it was before `quantize`"
        )


def policies(layer: keras.layers.Layer) -> Any:
    """A layer's dtype policy, with those of the quantized layers in it.

    Keras restores the types of a layer's sublayers from such a `DTypePolicyMap` alone.
    """
    if not layer.built:  # nothing in it is quantized, and its name may not be its path yet
        return layer.dtype_policy
    plain, inside = _policy(layer), f"{layer.path}/"
    quantized = {
        rf"(.*/)?{re.escape(below.path.removeprefix(inside))}": _policy(below)
        for below in sublayers(layer)
        if below is not layer and below.quantization_mode is not None
    }
    return keras.dtype_policies.DTypePolicyMap(plain, quantized) if quantized else plain


def _policy(layer):
    policy = layer.dtype_policy
    return policy[layer.path] if isinstance(policy, keras.dtype_policies.DTypePolicyMap) else policy
