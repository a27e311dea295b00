"""Reads the YAML of configurations, which may be damaged or made to do harm."""

import os
from collections.abc import Mapping
from typing import Any

from vit_keras import extras

# A recipe has 2 kB. PyYAML, which is written in Python, reads 100 kB in 2 s.
LARGEST_YAML_BYTES = 2**17
MOST_VALUES = 10_000  # of a file, counted as often as an alias repeats them
DEEPEST_YAML = 20  # levels; the time that PyYAML takes grows with the square of 100,000 brackets


def read_yaml(path: str | os.PathLike) -> dict[str, Any]:
    """Reads a YAML file of fields.

    Raises:
        FileNotFoundError: There is no file at `path`.
        ValueError: The file is damaged, or far larger than a configuration. The message names it.
    """
    yaml = extras.require("yaml", extra="train", purpose="Reading a configuration")
    name = repr(os.fspath(path))
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no configuration at {name}.")
    if not os.path.isfile(path):  # opening a pipe might never end
        raise _damaged(name, "it is no file")
    if (size := os.path.getsize(path)) > LARGEST_YAML_BYTES:
        raise _damaged(name, f"its {size} bytes are more than {LARGEST_YAML_BYTES}")
    with open(path, "rb") as file:
        text = file.read(LARGEST_YAML_BYTES)
    try:
        if _is_deeper(yaml.scan(text.decode("utf-8")), DEEPEST_YAML):
            raise ValueError(f"it has more than {DEEPEST_YAML} levels")
        content = yaml.safe_load(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _damaged(name, f"it is not UTF-8 from byte {error.start} on") from error
    except Exception as error:  # wrong tags raise IndexError, AttributeError and the like
        reason = " ".join(str(error).split())
        raise _damaged(name, f"it is not YAML: {reason or type(error).__name__}") from error
    if content is None:
        raise _damaged(name, "it is empty")
    if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
        raise _damaged(name, "it must hold fields, such as `dataset: digits`")
    if _has_more_values(content, MOST_VALUES):
        raise _damaged(name, f"it holds more than {MOST_VALUES} values")
    return dict(content)


def _damaged(name, reason):
    return ValueError(f"{name} cannot be read as a configuration ({reason})")


def _is_deeper(tokens, most):
    """Whether lists and objects nest deeper; reads no further than there."""
    depth = 0
    for token in tokens:
        kind = type(token).__name__
        depth += kind.endswith(("SequenceStartToken", "MappingStartToken"))
        depth -= kind.endswith(("SequenceEndToken", "MappingEndToken", "BlockEndToken"))
        if depth > most:
            return True
    return False


def _has_more_values(content, most):
    """Whether there are more values; those of an alias count each time, and may hold themselves."""
    waiting, count = [content], 0
    while waiting and count <= most:
        value = waiting.pop()
        inside = value.values() if isinstance(value, Mapping) else value
        if isinstance(value, (Mapping, list, tuple, set)):
            count += len(value)
            waiting.extend(inside)
    return count > most
