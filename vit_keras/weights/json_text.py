"""JSON from files that anyone may have written."""

import json
from typing import Any

from vit_keras.annotated import short
from vit_keras.weights.containers.checks import DamagedFile

# Names and numbers of 100,000 classes take less. Objects in memory take up to 25 times the text.
LARGEST_JSON_BYTES = 2**23
DEEPEST_JSON = 50  # levels of lists and objects; configurations have up to 10


def parse_json(content: str | bytes, label: str) -> Any:
    """Parses JSON.

    Args:
        content: The text, which is UTF-8 if it is in bytes.
        label: What it is and where, for messages.

    Raises:
        DamagedFile: It is no JSON, too long or too deep, or an object has a name twice.
    """
    if len(content) > LARGEST_JSON_BYTES:
        raise DamagedFile(
            f"{label} must have at most {LARGEST_JSON_BYTES} bytes. Received: {len(content)} bytes"
        )
    try:
        text = content if isinstance(content, str) else content.decode()
        parsed = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{label} is not JSON ({str(error)[:200]})") from error
    if _depth(parsed) > DEEPEST_JSON:
        raise DamagedFile(f"{label} must nest at most {DEEPEST_JSON} lists and objects")
    return parsed


def _once(pairs):
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {short(twice)} stands twice in an object")
    return content


def _depth(parsed) -> int:
    """The number of levels, without recursion."""
    level, depth = [parsed], 0
    while level := [value for value in level if isinstance(value, (dict, list))]:
        depth += 1
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [value for values in inner for value in values]
        if depth > DEEPEST_JSON:
            break
    return depth
