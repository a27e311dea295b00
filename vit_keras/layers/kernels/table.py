"""Which operations a backend computes by code of its own: operation -> backend -> function."""

import importlib
from collections.abc import Callable
from typing import overload

import keras

TABLE = {
    # layers
    "encoder_block": {"torch": "torch_blocks.encoder_block"},
    "call_chain": {"torch": "torch_chains.call_chain"},
    "make_step": {"torch": "torch_compiled.make_step"},
    "predict_array": {
        "torch": "torch_predict.predict_array",
        "jax": "jax_predict.predict_array",
        "tensorflow": "tensorflow_predict.predict_array",
    },
    "call_inside": {"torch": "torch_calls.call_inside"},
    "layer_norm": {"torch": "torch_calls.layer_norm"},
    "linear": {"torch": "torch_products.linear"},
    "affine": {"jax": "jax_long_training.affine"},
    "train_mlp": {
        "torch": "torch_products.mlp",
        "jax": "jax_long_training.mlp",
        "tensorflow": "tensorflow_mlp.mlp",
    },
    "train_gelu": {"tensorflow": "tensorflow_training.gelu"},
    "train_gelu_tanh": {"tensorflow": "tensorflow_training.gelu_tanh"},
    "train_layer_norm": {
        "tensorflow": "tensorflow_training.layer_norm",
        "jax": "jax_long_training.layer_norm",
        "torch": "torch_calls.layer_norm",
    },
    "fused_attention": {
        "torch": "torch_attention.attention",
        "jax": "jax_attention.attention",
        "tensorflow": "tensorflow_attention.attention",
    },
    # training
    "no_grad": {"torch": "torch_training.no_grad"},
    "global_norm": {
        "torch": "torch_training.global_norm",
        "tensorflow": "tensorflow_training.global_norm",
    },
    "scale_tensors": {"torch": "torch_training.scale_tensors"},
    "move_towards": {"torch": "torch_training.move_towards"},
    "update_if": {"jax": "jax_training.update_if"},
    "update_groups": {"torch": "torch_training.update_groups"},
    "adamw_update": {"torch": "torch_training.adamw_update"},
    "sgd_update": {"torch": "torch_training.sgd_update"},
    "adam_update": {"tensorflow": "tensorflow_training.adam_update"},
    "generator_state": {"torch": "torch_generator.generator_state"},
    "set_generator_state": {"torch": "torch_generator.set_generator_state"},
    # models for inference
    "heads_first_attention": {"torch": "torch_attention.heads_first"},
    "inference_normalize": {"torch": "torch_inference.normalize"},
    "inference_gelu": {"torch": "torch_inference.gelu_of_kind"},
    # choices
    "measure_choices": {
        "torch": "torch_timing.measure",
        "jax": "jax_attention.measure",
        "tensorflow": "tensorflow_attention.measure",
    },
    "check_choices": {"torch": "torch_choices.check"},
}


@overload
def lookup(operation: str, default: Callable) -> Callable: ...
@overload
def lookup(operation: str, default: None = None) -> Callable | None: ...
def lookup(operation, default=None):
    """The current backend's function for `operation`, or `default` where its row has none.

    The module that holds the function is imported here, so that no other backend's code is loaded.

    Raises:
        KeyError: If `TABLE` has no row called `operation`.
    """
    location = TABLE[operation].get(keras.backend.backend())
    if location is None:
        return default
    module, function = location.split(".")
    return getattr(importlib.import_module(f"{__package__}.{module}"), function)


def dispatch(operation: str) -> Callable[[Callable], Callable]:
    """Decorates the portable function of `operation`; the backend's own, if any, replaces it.

    The choice is made once, when the decorated function is defined, so a call costs nothing more.

    Raises:
        KeyError: If `TABLE` has no row called `operation`.
    """
    return lambda portable: lookup(operation, portable)
