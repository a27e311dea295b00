"""What JAX needs in training: branches that return what they assign."""

import keras
from keras import ops


def update_if(condition, update, otherwise, variables):
    """Calls `update()` where `condition` holds, else `otherwise()`; both assign to `variables`."""

    def values_after(function):
        with keras.StatelessScope([(v, v.value) for v in variables]) as scope:
            function()
        return [scope.get_current_value(v) for v in variables]

    values = ops.cond(condition, lambda: values_after(update), lambda: values_after(otherwise))
    for variable, value in zip(variables, values):
        variable.assign(value)
