"""Which operations a backend computes by code of its own: operation -> backend -> function."""

import importlib
from collections.abc import Callable

import keras

TABLE = {
    "train_layer_norm": {"tensorflow": "tensorflow_training.layer_norm"},
    "train_gelu": {"tensorflow": "tensorflow_training.gelu"},
    "train_gelu_tanh": {"tensorflow": "tensorflow_training.gelu_tanh"},
    "train_mlp": {"torch": "torch_products.mlp"},
    "linear": {"torch": "torch_products.linear"},
    "fused_attention": {"torch": "torch_attention.attention", "jax": "jax_attention.attention"},
    "heads_first_attention": {"torch": "torch_attention.heads_first"},
    "measure_choices": {"torch": "torch_choices.measure"},
    "check_choices": {"torch": "torch_choices.check"},
}


def lookup(operation: str, default: Callable | None = None) -> Callable | None:
    """The current backend's function for `operation`, or `default` where its row has none.

    The module that holds the function is imported here, so that no other backend's code is loaded.

    Raises:
        KeyError: if `TABLE` has no row called `operation`.
    """
    location = TABLE[operation].get(keras.backend.backend())
    if location is None:
        return default
    module, function = location.split(".")
    return getattr(importlib.import_module(f"{__package__}.{module}"), function)


def dispatch(portable: Callable) -> Callable:
    """Decorates a portable function: the backend's own function replaces it where `TABLE` has one.

    The row is the one called as the function is. The choice is made once, when the decorated
    function is defined, so a call costs nothing more.
    """
    return lookup(portable.__name__, portable)
