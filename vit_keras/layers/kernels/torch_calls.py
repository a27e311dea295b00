"""Calls of a layer inside another layer on torch, without what Keras does around each call.

A call of a Keras layer takes 30 to 100 µs there, however small the layer: Keras looks for symbolic
tensors, converts arguments, opens scopes, and finds out whether the call is for training. The layer
outside was called so, and for a layer inside with the same types all of this is settled.
"""

import functools
import inspect

import keras
import torch
from torch.nn.modules import module

TYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def call_inside(outer, layer, x, training=None, **kwargs):
    """`layer(x, training=training, **kwargs)`, by `layer.call` where nothing around it matters."""
    if not _is_plain(layer, outer, x):
        return layer(x, training=training, **kwargs)
    if _takes_training(layer.__class__):
        kwargs["training"] = training
    return layer.call(x, **kwargs)


@functools.cache
def _takes_training(kind):
    return "training" in inspect.signature(kind.call).parameters


def _is_plain(layer, outer, x) -> bool:
    policy = outer.dtype_policy
    return (
        type(policy) is keras.DTypePolicy  # and so neither quantized nor a map of several
        and isinstance(layer, keras.layers.Layer)
        and layer.dtype_policy is policy  # the scope of `outer` holds
        and layer.built
        and layer.activity_regularizer is None
        and x.dtype is TYPES.get(policy.compute_dtype)
        and not (layer._forward_hooks or layer._forward_pre_hooks)
        and not (layer._backward_hooks or layer._backward_pre_hooks)
        and not module._has_any_global_hook()
        and keras.distribution.distribution() is None
    )


def value_of(x) -> torch.Tensor:
    """The tensor of a variable, or the tensor itself."""
    if isinstance(x, torch.Tensor):
        return x
    return x.value if isinstance(x, keras.Variable) else keras.ops.convert_to_tensor(x)


def layer_norm(x, gamma, beta, epsilon: float):
    """LN(x) γ + β over the last axis, in float32 at least, as `keras.ops` has it without checks."""
    exact = x.dtype if x.dtype is torch.float64 else torch.float32
    gamma, beta = (value_of(v).to(exact) for v in (gamma, beta))
    y = torch.nn.functional.layer_norm(x.to(exact), x.shape[-1:], gamma, beta, epsilon)
    return y.to(x.dtype)
