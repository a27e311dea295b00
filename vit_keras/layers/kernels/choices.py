"""The implementations that were chosen for the operations that have several.

A choice is a boolean option of a kernel. It holds for the whole process, from `use` on.
"""

import keras

from vit_keras.layers.kernels.table import lookup

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
    from vit_keras.layers import kernels

    choices = kernels.measure()
    kernels.use(choices)
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
    _chosen.clear()
    _chosen.update(rows)


def chosen() -> dict[str, dict[str, bool]]:
    """The choices that hold now: `{kernel: {option: bool}}`."""
    return {kernel: dict(options) for kernel, options in (_chosen or _rows()).items()}


def options_of(kernel: str) -> dict[str, bool]:
    """The options of one kernel that hold now; not to be changed."""
    return (_chosen or DEFAULTS[keras.backend.backend()])[kernel]


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
            f"Received: {', '.join(map(repr, unknown))}. Measure again with `kernels.measure()`"
        )
