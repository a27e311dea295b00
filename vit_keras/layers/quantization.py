"""Dense layers that Keras quantized: which they are, and how their parents are saved."""

import re
from typing import Any

import keras

from vit_keras.support.keras_internals import sublayers


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


@keras.saving.register_keras_serializable(package="vit_keras")
class QuantizedPolicies(keras.dtype_policies.DTypePolicyMap):
    """The dtype policies of a layer's sublayers, and how Keras quantized them.

    Args:
        default_policy: The policy of the other sublayers.
        policy_map: `{regular expression of paths: policy}`.
        configs: `{regular expression of paths: QuantizationConfig or None}`.
    """

    def __init__(self, default_policy=None, policy_map=None, configs=None):
        super().__init__(default_policy, policy_map)
        self.configs = configs or {}

    def get_config(self):
        configs = keras.saving.serialize_keras_object(self.configs)
        return {**super().get_config(), "configs": configs}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        configs = keras.saving.deserialize_keras_object(config["configs"], custom_objects)
        return super().from_config({**config, "configs": configs}, custom_objects)


def quantization_config(layer: keras.layers.Layer) -> keras.quantizers.QuantizationConfig | None:
    """How Keras had quantized a sublayer, as the policies of its parent say."""
    configs = getattr(layer.dtype_policy, "configs", {})
    return next((c for path, c in configs.items() if re.fullmatch(path, layer.path)), None)


def policies(layer: keras.layers.Layer) -> Any:
    """A layer's dtype policy, with those of the quantized layers in it.

    Keras restores the types of a layer's sublayers from a `DTypePolicyMap` alone.
    """
    if not layer.built:  # nothing in it is quantized, and its name may not be its path yet
        return layer.dtype_policy
    plain, inside = _policy(layer), f"{layer.path}/"
    quantized = {
        rf"(.*/)?{re.escape(below.path.removeprefix(inside))}": below
        for below in sublayers(layer)
        if below is not layer and below.quantization_mode is not None
    }
    if not quantized:
        return plain
    policies = {path: _policy(below) for path, below in quantized.items()}
    configs = {path: getattr(b, "quantization_config", None) for path, b in quantized.items()}
    return QuantizedPolicies(plain, policies, configs)


def _policy(layer):
    policy = layer.dtype_policy
    return policy[layer.path] if isinstance(policy, keras.dtype_policies.DTypePolicyMap) else policy
