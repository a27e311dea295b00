"""Every use of names that are private to Keras, each with what it relies on.

Keras may change such names in any minor version. The supported versions are therefore bounded here
and in `pyproject.toml`, each use checks the version that runs, and `tests/test_keras_internals.py`
checks that the names exist and take the arguments that are passed to them.
"""

from vit_keras.keras_internals.calls import (
    chain_of,
    has_variable_scope,
    is_inside_call,
    tensor_reader,
    tensors_of,
)
from vit_keras.keras_internals.layers import (
    FixedSeed,
    count_uses,
    first_input_of,
    operation_of,
    stored_kernel,
    sublayers,
    take_own_policy,
    unlocked,
    weights_in_memory,
)
from vit_keras.keras_internals.training import (
    Optimizer,
    averages_of,
    build_metrics,
    is_jax_state,
    is_torch_optimizer,
    layout_of,
    reduced_logs,
    skip_building,
    wrap_logs,
)
from vit_keras.keras_internals.version import (
    REQUIREMENT,
    SUPPORTED,
    check_keras,
)

__all__ = [
    "REQUIREMENT",
    "SUPPORTED",
    "FixedSeed",
    "Optimizer",
    "averages_of",
    "build_metrics",
    "chain_of",
    "check_keras",
    "count_uses",
    "first_input_of",
    "has_variable_scope",
    "is_inside_call",
    "is_jax_state",
    "is_torch_optimizer",
    "layout_of",
    "operation_of",
    "reduced_logs",
    "skip_building",
    "stored_kernel",
    "sublayers",
    "take_own_policy",
    "tensor_reader",
    "tensors_of",
    "unlocked",
    "weights_in_memory",
    "wrap_logs",
]
