"""Arithmetic on lists of tensors and variables.

On JAX, and on TensorFlow but for the norm, the compiler joins these loops of `keras.ops`. Torch
would take several times as long, since every step makes a tensor of its own; its kernels compute a
list in one call.
"""

import contextlib

from keras import ops

from vit_keras.layers import backends


@backends.dispatch("no_grad")
def no_grad():
    """Returns the context in which variables are updated in place."""
    return contextlib.nullcontext()


@backends.dispatch("global_norm")
def global_norm(tensors):
    """Returns the norm of all `tensors` together, a float32 scalar."""
    return ops.sqrt(sum(ops.sum(ops.square(ops.cast(x, "float32"))) for x in tensors))


@backends.dispatch("scale_tensors")
def scale_tensors(tensors, scale):
    """Returns `tensors` times `scale`; torch scales them in place, as `clip_grad_norm_` does."""
    return [x * ops.cast(scale, x.dtype) for x in tensors]


@backends.dispatch("move_towards")
def move_towards(variables, targets, fraction):
    """Moves `variables` by `fraction` of the way to `targets`, all the way for 1."""
    for variable, target in zip(variables, targets):
        step = ops.cast(fraction, variable.dtype) * (target - variable)
        variable.assign(variable + step)


@backends.dispatch("update_if")
def update_if(condition, update, otherwise, variables):
    """Calls `update()` where `condition` holds, else `otherwise()`; both assign to `variables`."""
    ops.cond(condition, update, otherwise)
