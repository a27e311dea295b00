"""What torch has on this machine."""

import contextlib
import functools

import torch

_is_tracing = False


def concerns(x: torch.Tensor) -> bool:
    """Whether the choices apply to `x`: on CPUs, where torch does not compile the model."""
    return x.device.type == "cpu" and not is_traced()


def is_traced() -> bool:
    """Whether operations are recorded for torch to compile."""
    return _is_tracing or torch.compiler.is_compiling()


@contextlib.contextmanager
def tracing():
    """While open, operations are recorded for torch to compile."""
    global _is_tracing
    _is_tracing = True
    try:
        yield
    finally:
        _is_tracing = False


@functools.cache
def has_onednn() -> bool:
    """Whether this torch can call oneDNN's products."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@functools.cache
def has_onednn_bfloat16() -> bool:
    """Whether oneDNN has products in bfloat16 on this processor."""
    return has_onednn() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def check(choices: dict[str, dict[str, bool]]) -> None:
    """Checks that this machine can run the chosen implementations.

    Raises:
        ValueError: If it cannot.
    """
    products = choices["torch_products"]
    needed = {"bfloat16": has_onednn_bfloat16} | dict.fromkeys(
        ("forward", "inputs", "kernel"), has_onednn
    )
    missing = [name for name, has in needed.items() if products[name] and not has()]
    if missing:
        raise ValueError(
            "The chosen products need oneDNN, in bfloat16 also a processor that it supports. "
            f"Received: torch_products with {', '.join(missing)} on a machine without. Resume the "
            "run on the machine that began it, or begin a new one here"
        )
