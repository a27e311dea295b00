"""Each backend's own code for the operations of layers and training, and the choices among it.

`TABLE` says which operations a backend computes by code of its own; the layers hold the portable
version, in `keras.ops`, and `dispatch` replaces it where the table has a row:

    @backends.dispatch("linear")
    def linear(x, kernel, bias):
        return ops.matmul(x, kernel) + bias

Some of these operations have several implementations, and which is faster depends on the machine.
The choice belongs to the program, because other implementations round differently:

    backends.measure() -> dict[str, dict[str, bool]]  times them, a second or two on CPUs
    backends.use(mapping) -> None                     makes these choices hold from now on
    backends.chosen() -> dict[str, dict[str, bool]]   the choices that hold

The dictionaries are plain JSON, to be recorded with a run and used again when it is resumed. No
layer measures anything. Without `use`, the defaults hold: the backend's standard implementation
everywhere, whatever the processor.
"""

import importlib
import os
import time
from collections.abc import Callable
from typing import overload

import keras

TABLE = {
    # layers
    "layer_norm": {"torch": "torch.layer_norm"},
    "linear": {"torch": "torch.linear"},
    "affine": {"jax": "jax.affine"},
    "train_mlp": {
        "torch": "torch.mlp",
        "jax": "jax.mlp",
        "tensorflow": "tensorflow.mlp",
    },
    "train_gelu": {"tensorflow": "tensorflow.gelu"},
    "train_gelu_tanh": {"tensorflow": "tensorflow.gelu_tanh"},
    "train_layer_norm": {
        "tensorflow": "tensorflow.layer_norm",
        "jax": "jax.layer_norm",
        "torch": "torch.layer_norm",
    },
    "fused_attention": {
        "torch": "torch.attention",
        "jax": "jax.attention",
        "tensorflow": "tensorflow.attention",
    },
    # training
    "no_grad": {"torch": "torch.no_grad"},
    "global_norm": {
        "torch": "torch.global_norm",
        "tensorflow": "tensorflow.global_norm",
    },
    "scale_tensors": {"torch": "torch.scale_tensors"},
    "move_towards": {"torch": "torch.move_towards"},
    "update_if": {"jax": "jax.update_if"},
    "update_groups": {"torch": "torch.update_groups"},
    "adamw_update": {"torch": "torch.adamw_update"},
    "sgd_update": {"torch": "torch.sgd_update"},
    "adam_update": {"tensorflow": "tensorflow.adam_update"},
    "generator_state": {"torch": "torch.generator_state"},
    "set_generator_state": {"torch": "torch.set_generator_state"},
    # steps of models
    "make_step": {"torch": "torch_graphs.make_step"},
    "call_in_step": {"torch": "torch_graphs.call_in_step"},
    "predict_batches": {
        "torch": "torch_graphs.predict_batches",
        "jax": "jax.predict_batches",
        "tensorflow": "tensorflow.predict_batches",
    },
    # models for inference
    "heads_first_attention": {"torch": "torch.heads_first"},
    "inference_normalize": {"torch": "torch.normalize"},
    "inference_gelu": {"torch": "torch.gelu_of_kind"},
    # choices
    "measure_choices": {
        "torch": "torch.measure",
        "jax": "jax.measure",
        "tensorflow": "tensorflow.measure",
    },
    "check_choices": {"torch": "torch.check"},
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
    return getattr(importlib.import_module(f"{__name__}.{module}"), function)


def dispatch(operation: str) -> Callable[[Callable], Callable]:
    """Decorates the portable function of `operation`; the backend's own, if any, replaces it.

    The choice is made once, when the decorated function is defined, so a call costs nothing more.

    Raises:
        KeyError: If `TABLE` has no row called `operation`.
    """
    return lambda portable: lookup(operation, portable)


# Whether sequences from this many tokens on are long; see `long_sequences`.
LONG_SEQUENCES = {"from_512": False, "from_1024": True}
DEFAULTS = {
    "jax": {"long_sequences": LONG_SEQUENCES},
    "tensorflow": {"long_sequences": LONG_SEQUENCES},
    "torch": {
        # Products by oneDNN instead of torch's default library: in float32 x w + b, its gradient
        # to x and its gradient to w; in bfloat16 x w + b, with the GELU that follows it.
        "torch_products": {"forward": False, "inputs": False, "kernel": False, "bfloat16": False},
        # Attention in bfloat16 by products that are written out instead of torch's own kernel.
        "torch_attention": {"written_out": False},
    },
}
_chosen: dict[str, dict[str, bool]] = {}


def measure() -> dict[str, dict[str, bool]]:
    """Times the implementations that this backend has and returns the faster ones.

    It takes a second or two where the model runs on CPUs. On accelerators there is nothing to
    time. The result holds only once it is given to `use`.

    Returns:
        A dictionary as `chosen` returns it.

    Example:

    ```python
    from vit_keras.layers import backends

    choices = backends.measure()
    backends.use(choices)
    ```
    """
    measured = lookup("measure_choices", dict)()
    return {kernel: {**options, **measured.get(kernel, {})} for kernel, options in _rows().items()}


def use(mapping: dict[str, dict[str, bool]]) -> None:
    """Makes the choices in `mapping` hold from now on, and the defaults for what it leaves out.

    Models that were compiled before, by `torch.compile` for instance, keep what they have.

    Args:
        mapping: `{kernel: {option: bool}}`, as `measure` and `chosen` return it.

    Raises:
        ValueError: If `mapping` names a kernel or an option that this backend does not have, if a
            value is not a bool, or if this machine cannot run the implementation. The choices stay
            as they were.
    """
    rows = _rows()
    _check_names("kernel", mapping, rows)
    for kernel, options in mapping.items():
        _check_names(f"option of {kernel!r}", options, rows[kernel])
        for name, value in options.items():
            if not isinstance(value, bool):
                raise ValueError(
                    f"A choice must be true or false. Received: {kernel}.{name}={value!r}"
                )
        rows[kernel] |= options
    lookup("check_choices", lambda rows: None)(rows)
    global _chosen
    _chosen = rows


def chosen() -> dict[str, dict[str, bool]]:
    """The choices that hold now: `{kernel: {option: bool}}`."""
    return {kernel: dict(options) for kernel, options in (_chosen or _rows()).items()}


def options_of(kernel: str) -> dict[str, bool]:
    """The options of one kernel that hold now; not to be changed."""
    return in_use()[kernel]


def in_use() -> dict[str, dict[str, bool]]:
    """All options that hold now, an object that `use` replaces; not to be changed."""
    return _chosen or DEFAULTS[keras.backend.backend()]


def _rows():
    """A copy of this backend's defaults."""
    defaults = DEFAULTS.get(keras.backend.backend(), {})
    return {kernel: dict(options) for kernel, options in defaults.items()}


def _check_names(what, mapping, allowed):
    if not isinstance(mapping, dict):
        raise ValueError(f"Choices must be `{{kernel: {{option: bool}}}}`. Received: {mapping!r}")
    unknown = [name for name in mapping if name not in allowed]
    if unknown:
        known = ", ".join(map(repr, allowed)) or "none"
        raise ValueError(
            f"Each {what} must be one that the {keras.backend.backend()} backend has ({known}). "
            f"Received: {', '.join(map(repr, unknown))}. Measure again with `backends.measure()`"
        )


GAIN = 1.05  # less than this is noise
# CPU time, which other work on the machine changes little; on Windows it is too coarse.
CLOCK = time.process_time if os.name == "posix" else time.perf_counter


def is_faster(new: Callable, old: Callable, operands: list[tuple], rounds: int) -> bool:
    """Whether `new` takes less time for all `operands` than `old`, called in turns with it."""
    seconds: dict[Callable, list[float]] = {new: [], old: []}
    for turn in range(rounds + 1):
        for function in (new, old):
            start = CLOCK()
            for arguments in operands:
                function(*arguments)
            if turn:  # the first turn allocates
                seconds[function].append(CLOCK() - start)
    return min(seconds[old]) > GAIN * min(seconds[new])
