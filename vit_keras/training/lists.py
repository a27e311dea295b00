"""Arithmetic on lists of tensors and variables, which torch does in one call for them all.

A loop of `keras.ops` takes torch several times as long: every step makes a tensor of its own. On
JAX, and on TensorFlow but for the norm, the compiler joins them.
"""

import contextlib

import keras
from keras import ops


def no_grad():
    """The context of updates in place."""
    if keras.backend.backend() != "torch":
        return contextlib.nullcontext()
    import torch

    return torch.no_grad()


def global_norm(tensors):
    """The norm of all `tensors` together, float32."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.linalg.global_norm([ops.cast(x, "float32") for x in tensors])
    if keras.backend.backend() == "jax":
        return ops.sqrt(sum(ops.sum(ops.square(ops.cast(x, "float32"))) for x in tensors))
    import torch

    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)).float())


def scaled(tensors, scale):
    """The tensors times `scale`: on torch the same ones, as by `clip_grad_norm_`, elsewhere new."""
    if keras.backend.backend() != "torch":
        return [x * ops.cast(scale, x.dtype) for x in tensors]
    import torch

    torch._foreach_mul_(tensors, scale)
    return tensors


def move_towards(variables, targets, fraction):
    """Moves `variables` by `fraction` of the way to `targets`, all the way for 1."""
    if keras.backend.backend() != "torch":
        for variable, target in zip(variables, targets):
            step = ops.cast(fraction, variable.dtype) * (target - variable)
            variable.assign(variable + step)
        return
    import torch

    torch._foreach_lerp_([v.value for v in variables], [v.value for v in targets], float(fraction))
