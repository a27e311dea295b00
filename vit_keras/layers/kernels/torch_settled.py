"""Whether a call of a Keras layer on torch does more than `layer.call`.

Keras looks for symbolic tensors, converts arguments, opens scopes and runs hooks around each call,
for 30 to 100 µs. Most of that follows from what a layer is, and the rest can be compared in a few
microseconds, for many layers at once.
"""

import operator

import keras
import torch
from torch.nn.modules import module

from vit_keras.keras_internals import has_variable_scope

TYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
POLICY = operator.attrgetter("dtype_policy")
ADAPTED = operator.attrgetter("lora_enabled")
REGULARIZER = operator.attrgetter("activity_regularizer")


def has_hook(layer) -> bool:
    """Whether torch runs something else before or after a call of the layer."""
    return any(getattr(layer, name) for name in HOOKS)


def is_alone() -> bool:
    """Whether neither hooks on all modules nor a distribution over devices have a part in calls."""
    return not module._has_any_global_hook() and keras.distribution.distribution() is None


class Settled:
    """Built layers of one type, `call` of which stands for a call while `holds` is true.

    Args:
        layers: The layers.

    Attributes:
        dtype: Torch's type of what they take and return; None where they have none in common.
    """

    def __init__(self, layers):
        self.layers = tuple(layers)
        self.policies = tuple(map(POLICY, self.layers))
        self.hooks = tuple(getattr(layer, name) for layer in self.layers for name in HOOKS)
        self.dense = [layer for layer in self.layers if hasattr(layer, "lora_enabled")]
        # Several types mean casts on the way; another kind of policy, quantized layers.
        types = {kind for policy in self.policies for kind in _types(policy)}
        is_settled = len(types) == 1 and all(layer.built for layer in self.layers)
        self.dtype = TYPES.get(types.pop()) if is_settled else None

    def holds(self, x) -> bool:
        """Whether the layers are as they were, and can take `x` and what follows from it."""
        return (
            x.dtype is self.dtype
            and not any(self.hooks)
            and tuple(map(POLICY, self.layers)) == self.policies
            and not any(map(REGULARIZER, self.layers))
            and not any(map(ADAPTED, self.dense))
            and not has_variable_scope()
            and is_alone()
        )


def _types(policy):
    if type(policy) is not keras.DTypePolicy:  # quantized, or a map of several
        return (None,)
    return policy.compute_dtype, policy.variable_dtype
