"""Checks of arguments, and of values from JSON against annotated types."""

import dataclasses
import functools
import json
import numbers
import operator
import reprlib
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

LARGEST_INT = 2**31  # of sizes and counts
LARGEST_FLOAT = 1e30  # products of such numbers still fit into float32


def pair(value, name: str) -> tuple[int, int]:
    """Returns `value` as (height, width); an int stands for both.

    Raises:
        ValueError: If `value` is neither a positive int nor a pair of positive ints.
    """
    both = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(both) != 2 or not all(isinstance(v, int) and v > 0 for v in both):
        raise ValueError(
            f"`{name}` must be a positive int or a pair (height, width) of them. "
            f"Received: {name}={value!r}"
        )
    return both


def check_choice(value, choices, name: str) -> None:
    """Raises ValueError unless `value`, of any type, is one of `choices`."""
    if not isinstance(value, Hashable) or value not in choices:
        allowed = ", ".join(map(repr, choices))
        raise ValueError(f"`{name}` must be one of {allowed}. Received: {name}={value!r}")


def check_annotated(values: Mapping[str, Any], annotated: Callable) -> None:
    """Checks that values have the types of a function's arguments or of a class's fields.

    As in JSON, a list may replace a tuple, and an object may replace a dataclass. Names without an
    annotation are not checked.

    Args:
        values: `{name of the argument: value}`.
        annotated: A function or a dataclass.

    Raises:
        ValueError: If a value has another type, or is a number that is too large.
    """
    for name, hint in _hints(annotated).items():
        if name in values and not fits(values[name], hint):
            raise ValueError(
                f"`{name}` must be of type {_name(hint)}. Received: {short(values[name])}"
            )


def check_types(instance: Any) -> None:
    """As `check_annotated`, for the fields of a dataclass."""
    fields = dataclasses.fields(instance)
    check_annotated({field.name: getattr(instance, field.name) for field in fields}, type(instance))


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has an annotated type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, inner) for inner in arguments)
    if origin is tuple:
        return _fits_tuple(value, arguments)
    if dataclasses.is_dataclass(hint):
        return isinstance(value, typing.cast(type, hint)) or _fits_fields(value, hint)
    return SIMPLE[hint](value) if hint in SIMPLE else True


def is_text(value: Any) -> bool:
    """Whether a value is a text that can be encoded; lone surrogates cannot."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def is_int(value: Any) -> bool:
    """Whether a value is a whole number in the range of counts."""
    return _is(value, numbers.Integral) and abs(value) < LARGEST_INT


def is_number(value: Any) -> bool:
    """Whether a value is a finite number."""
    return _is(value, numbers.Real) and abs(value) < LARGEST_FLOAT  # False for NaN


def short(value: Any) -> str:
    """Returns a text for any value that fits into a message."""
    return reprlib.repr(value)


@functools.cache
def _hints(annotated):
    return typing.get_type_hints(annotated)


def _is(value, kind):
    return isinstance(value, kind) and not isinstance(value, bool)


def _fits_tuple(value, arguments):
    if not isinstance(value, (list, tuple)):
        return False
    if arguments[-1] is Ellipsis:
        return all(fits(item, arguments[0]) for item in value)
    return len(value) == len(arguments) and all(map(fits, value, arguments))


def _fits_fields(value, kind):
    if not isinstance(value, dict):
        return False
    hints = _hints(kind)
    return value.keys() <= hints.keys() and all(fits(v, hints[name]) for name, v in value.items())


SIMPLE: dict[Any, Callable[[Any], bool]] = {
    bool: lambda value: isinstance(value, bool),
    dict: lambda value: isinstance(value, dict),
    int: is_int,
    float: is_number,
    str: is_text,
    type(None): lambda value: value is None,
}


def _name(hint):
    return hint.__name__ if isinstance(hint, type) else str(hint)


Rule = tuple[str, Callable[[Any], bool], str]  # a field, a test of its values, and its wording


def check_rules(config: Any, section: str | None, rules: Iterable[Rule]) -> None:
    """Checks the fields of a configuration. The value None satisfies every rule.

    Args:
        config: The dataclass of a section, or `Config`.
        section: The section's name in `Config`, which prefixes the option; None for `Config`
            itself.
        rules: A row for each field.

    Raises:
        ValueError: If a field breaks its rule.
    """
    prefix = f"{section}." if section else ""
    for name, holds, rule in rules:
        value = getattr(config, name)
        if value is not None and not holds(value):
            raise ValueError(f"`{prefix}{name}` must be {rule}. Received: {value}")


def check_defaults(run: Any, names: Iterable[str], where: str) -> None:
    """Checks that some fields of a run's `Config` have their defaults.

    Args:
        run: The `Config`.
        names: The dotted names of the fields.
        where: The option that requires these defaults, and the reason, for the message.

    Raises:
        ValueError: If some do not. The message names all of them.
    """
    default, values = type(run)(), {}
    for name in names:
        value, expected = (operator.attrgetter(name)(config) for config in (run, default))
        if value != expected:
            values[name] = value, expected
    if values:
        shown = lambda value: value if isinstance(value, str) else json.dumps(value)
        needed = " and ".join(f"`{name}` must be {shown(values[name][1])}" for name in values)
        received = ", ".join(f"{name}={shown(values[name][0])}" for name in values)
        raise ValueError(f"{needed} with {where}. Received: {received}")
