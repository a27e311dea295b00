"""Calls of layers on torch without what Keras does around each call, where nothing needs it.

A call of a Keras layer takes 30 to 100 µs there, however small the layer: Keras looks for symbolic
tensors, converts arguments, opens scopes, and finds out whether the call is for training. For a
layer inside of another with the same types, all of this is settled.
"""

import functools
import inspect

import keras
import torch

from vit_keras.layers.kernels.torch_settled import TYPES, has_hook, is_alone


def call_inside(outer, layer, x, training=None, **kwargs):
    """`layer(x, training=training, **kwargs)`, by `layer.call` where nothing around it matters."""
    if not _is_plain(layer, outer, x):
        return layer(x, training=training, **kwargs)
    if takes_training(layer.__class__):
        kwargs["training"] = training
    return layer.call(x, **kwargs)


@functools.cache
def takes_training(kind) -> bool:
    """Whether the `call` of a class of layers takes `training`."""
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
        and not has_hook(layer)
        and is_alone()
    )


def value_of(x) -> torch.Tensor:
    """The tensor of a variable, or the tensor itself."""
    if isinstance(x, torch.Tensor):
        return x
    return x.value if isinstance(x, keras.Variable) else keras.ops.convert_to_tensor(x)


def layer_norm(x, gamma, beta, epsilon: float):
    """LN(x) γ + β over the last axis, in float32 at least, as `keras.ops` has it without checks."""
    gamma, beta = value_of(gamma), value_of(beta)
    if x.dtype is torch.float32 is gamma.dtype:
        return torch.nn.functional.layer_norm(x, x.shape[-1:], gamma, beta, epsilon)
    exact = x.dtype if x.dtype is torch.float64 else torch.float32
    weights = gamma.to(exact), beta.to(exact)
    y = torch.nn.functional.layer_norm(x.to(exact), x.shape[-1:], *weights, epsilon)
    return y.to(x.dtype)
