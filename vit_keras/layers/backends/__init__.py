"""Each backend's own code for operations of layers and training, and how it is chosen.

`TABLE` lists the operations for which a backend has its own code. The layers contain the portable
version, written in `keras.ops`; `dispatch` replaces it where the table has a row:

    @backends.dispatch("linear")
    def linear(x, kernel, bias):
        return ops.matmul(x, kernel) + bias

Some operations have several implementations on torch, and which one is faster depends on the
machine. The choice is left to the program because implementations round differently:

    backends.measure() -> dict[str, dict[str, bool]]  times them in a second or two on CPUs
    backends.use(mapping) -> None                     applies these choices from now on
    backends.chosen() -> dict[str, dict[str, bool]]   returns the current choices

The dictionaries are plain JSON, so a run can record them and use them again when it resumes. No
layer measures anything. Without `use`, the defaults apply: the backend's standard implementations,
whatever the processor.
"""

import importlib
import os
import time
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from vit_keras.support.checks import SIMPLE, fault

# The modules of this package that compute an operation with a function of the same name. The first
# word of a module's name is its backend.
TABLE: dict[str, tuple[str, ...]] = {
    # layers
    "layer_norm": ("torch", "tensorflow"),
    "linear": ("torch",),
    "attention": ("torch", "jax", "tensorflow"),
    # layers in training
    "mlp": ("torch", "jax"),
    "gelu": ("tensorflow",),
    "gelu_tanh": ("tensorflow",),
    "train_layer_norm": ("tensorflow", "jax"),
    # training
    "gradients": ("torch", "jax", "tensorflow"),
    "on_host": ("torch", "jax", "tensorflow"),
    "no_grad": ("torch",),
    "global_norm": ("torch", "tensorflow"),
    "scale_tensors": ("torch",),
    "move_towards": ("torch",),
    "update_if": ("jax",),
    "update_groups": ("torch",),
    "adamw_update": ("torch", "tensorflow"),
    "sgd_update": ("torch",),
    "generator_state": ("torch",),
    "set_generator_state": ("torch",),
    # steps of models
    "make_step": ("torch_graphs",),
    "call_in_step": ("torch_graphs",),
    "predict_batches": ("torch_graphs", "jax", "tensorflow"),
    "placement": ("torch_graphs",),
    # choices
    "measure": ("torch",),
    "check": ("torch",),
}


def lookup(operation: str, default: Callable | None = None) -> Any:
    """The current backend's function for `operation`, or `default` if its row has none.

    This function imports the module that holds the result, so no other backend's code is loaded.

    Raises:
        KeyError: If `TABLE` has no row called `operation`.
    """
    for module in TABLE[operation]:
        if module.split("_")[0] == keras.backend.backend():
            return getattr(importlib.import_module(f"{__name__}.{module}"), operation)
    return default


def dispatch(operation: str) -> Callable[[Callable], Callable]:
    """Decorates the portable function of `operation`; the backend's own replaces it, if any.

    The choice is made once, when the decorated function is defined, so calls cost nothing extra.

    Raises:
        KeyError: If `TABLE` has no row called `operation`.
    """
    return lambda portable: lookup(operation, portable)


TORCH_DEFAULTS = {
    # oneDNN's products instead of those of torch's default library: in float32, x w + b and its two
    # gradients; in bfloat16, x w + b with the GELU that follows it.
    "torch_products": {"float32": False, "bfloat16": False},
    # Attention in bfloat16 as explicit products instead of torch's own kernel.
    "torch_attention": {"written_out": False},
}
DEFAULTS = TORCH_DEFAULTS if keras.backend.backend() == "torch" else {}
_chosen = DEFAULTS


def measure() -> dict[str, dict[str, bool]]:
    """Times the implementations that this backend has and returns the faster ones.

    This takes a second or two if the model runs on CPUs. On accelerators there is nothing to time.
    The result takes effect only when it is passed to `use`.

    Returns:
        A dictionary in the form that `chosen` returns.

    Example:

    ```python
    from vit_keras.layers import backends

    choices = backends.measure()
    backends.use(choices)
    ```
    """
    return _with_defaults(lookup("measure", dict)())


def use(mapping: dict[str, dict[str, bool]]) -> None:
    """Applies the choices in `mapping` from now on, and the defaults for options it leaves out.

    Models that are already compiled, by `torch.compile` for instance, keep their choices.

    Args:
        mapping: `{kernel: {option: bool}}`, in the form that `measure` and `chosen` return.

    Raises:
        ValueError: If `mapping` names a kernel or an option that this backend does not have, if a
            value is not a bool, or if this machine cannot run a chosen implementation. The choices
            then stay as they were.
    """
    is_known = not fault(mapping, dict[str, dict[str, bool]], SIMPLE) and all(
        kernel in DEFAULTS and DEFAULTS[kernel].keys() >= options.keys()
        for kernel, options in mapping.items()
    )
    if not is_known:
        raise ValueError(
            f"Choices must be bools for the options of the {keras.backend.backend()} backend, "
            f"as in {DEFAULTS}. Received: {mapping}. Measure again with `backends.measure()`"
        )
    choices = _with_defaults(mapping)
    lookup("check", lambda choices: None)(choices)
    global _chosen
    _chosen = choices


def chosen() -> dict[str, dict[str, bool]]:
    """The current choices, `{kernel: {option: bool}}`, which callers must not change."""
    return _chosen


def _with_defaults(choices):
    """New dictionaries of this backend's options: those in `choices`, and the defaults."""
    return {kernel: options | choices.get(kernel, {}) for kernel, options in DEFAULTS.items()}


GAIN = 1.05  # a smaller gain is noise
# CPU time, which other work on the machine barely affects; on Windows it is too coarse.
CLOCK = time.process_time if os.name == "posix" else time.perf_counter


def is_faster(new: Callable, old: Callable, operands: list[tuple], rounds: int) -> bool:
    """Whether `new` takes less time than `old` for all `operands`; their calls alternate."""
    seconds: dict[Callable, list[float]] = {new: [], old: []}
    for turn in range(rounds + 1):
        for function in (new, old):
            start = CLOCK()
            for arguments in operands:
                function(*arguments)
            if turn:  # the first turn allocates memory
                seconds[function].append(CLOCK() - start)
    return min(seconds[old]) > GAIN * min(seconds[new])


# Attention by explicit products keeps a number for each head and pair of tokens. On JAX's CPUs and
# on TensorFlow, long sequences are computed in blocks of queries, and their other layers keep less.
LONG = 1024  # tokens
BLOCK = 256  # queries at a time, at most


def is_long(*lengths: int | None) -> bool:
    """Whether attention between sequences of these lengths is computed block by block."""
    return min(length or 0 for length in lengths) >= LONG  # an unknown length counts as short


def divide(tokens: int, most: int | None = None) -> tuple[int, int]:
    """The number of blocks and their size; together they hold `tokens` tokens and few more.

    No block is larger than `most`; None means `BLOCK`.
    """
    count = -(-tokens // (most or BLOCK))
    return count, -(-tokens // count)


def gelu(x):
    """x Φ(x), computed with erf."""
    return ops.gelu(x, approximate=False)


def gelu_tanh(x):
    """The tanh approximation in the published Flax code."""
    return ops.gelu(x, approximate=True)


def gelu_quick(x):
    """x σ(1.702 x), the approximation in OpenAI's CLIP."""
    return x * ops.sigmoid(1.702 * x)


GELUS = {"exact": gelu, "tanh": gelu_tanh, "quick": gelu_quick}
