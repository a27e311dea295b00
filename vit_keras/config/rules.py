"""The checks of the fields of a configuration by tables of rules and of names."""

import json
import operator
from collections.abc import Callable, Iterable
from typing import Any

Rule = tuple[str, Callable[[Any], bool], str]  # a field, what holds of its values, and in words


def check_rules(config: Any, section: str | None, rules: Iterable[Rule]) -> None:
    """Checks the fields of a configuration, whose None passes every rule.

    Args:
        config: The dataclass of a section, or `Config`.
        section: Its name in `Config`, with which a message names the option; None for `Config`.
        rules: A row for each field.

    Raises:
        ValueError: If a rule does not hold.
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
        where: What other field this depends on, and why, for the message.

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
