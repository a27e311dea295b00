"""Private names of what calls read: the graph of a model, and the tensors of weights."""

import functools
import operator
import re
from collections.abc import Callable, Iterable

import keras

from vit_keras.keras_internals.version import check_keras

SCOPES = ("stateless_scope", "torch_device", "autocast_scope")


def chain_of(model: keras.Model) -> list[keras.Operation]:
    """The operations of a functional model in which each one takes the result of the one before.

    Empty for other models, and where an operation was called with another argument. Relies on
    `_nodes_by_depth`, and on nodes holding the `arguments` and `outputs` of a call.
    """
    check_keras()
    tensors, chain = list(model.inputs), []
    nodes = [node for depth in model._nodes_by_depth.values() for node in depth]
    for node in reversed(nodes):  # from the input to the output
        if node.is_input:
            continue
        takes, *others = node.arguments.args
        is_next = len(tensors) == 1 and takes is tensors[0] and not others
        if not is_next or node.arguments.kwargs not in ({}, {"training": False}):
            return []
        tensors = node.outputs
        chain.append(node.operation)
    return chain if len(tensors) == 1 and tensors[0] is model.output else []


def has_variable_scope() -> bool:
    """Whether a scope is open in which `variable.value` is not the tensor that the variable holds.

    Relies on the names of the stateless, device and autocast scopes among Keras' global attributes.
    """
    state = _global_state()
    return any(state.get(name) is not None for name in SCOPES)


def is_inside_call() -> bool:
    """Whether a layer is being called, from which layers in it may take `training`."""
    return _global_state().get("current_call_ctx") is not None


def _global_state() -> dict:
    """This thread's global attributes, which `keras.utils.clear_session` replaces."""
    return vars(_module().GLOBAL_STATE_TRACKER)


@functools.cache
def _module():
    check_keras()
    from keras.src.backend.common import global_state

    return global_state


def tensors_of(variables: Iterable[keras.Variable]) -> list:
    """The tensors that variables on torch hold, in their own types whatever scope is open.

    Relies on `_value`.
    """
    check_keras()
    return [variable._value for variable in variables]


def tensor_reader(*names: str) -> Callable:
    """A function of a layer on torch, or of what holds layers, that returns the tensors of weights.

    `variable.value` and `layer.kernel` look for scopes, quantization and adapters at each call, for
    some 10 µs. Relies on `_value` and `_kernel` being what they return where `has_variable_scope`
    is False and a dense layer is neither quantized nor adapted.

    Args:
        names: Two names or more, such as "query.kernel" for the kernel of the attribute `query`.

    Returns:
        A function that returns a tuple.
    """
    check_keras()
    stored = (re.sub(r"\bkernel$", "_kernel", name) for name in names)
    return operator.attrgetter(*(f"{name}._value" for name in stored))
