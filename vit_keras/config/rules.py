"""The check of the fields of a configuration by a table of rules."""

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
