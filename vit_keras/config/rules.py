"""The check of a section of the configuration by a table of rules."""

from collections.abc import Callable, Iterable
from typing import Any

Rule = tuple[str, Callable[[Any], bool], str]  # a field, what holds of its values, and in words


def check_rules(config: Any, section: str, rules: Iterable[Rule]) -> None:
    """Checks the fields of a section, whose None passes every rule.

    Args:
        config: The section's dataclass.
        section: Its name in `Config`, with which a message names the option.
        rules: A row for each field.

    Raises:
        ValueError: If a rule does not hold.
    """
    for name, holds, rule in rules:
        value = getattr(config, name)
        if value is not None and not holds(value):
            raise ValueError(f"`{section}.{name}` must be {rule}. Received: {value}")
