"""Reads JSON that this package wrote, and describes the damage if a file was changed since."""

import collections
import functools
import hashlib
import json
import os
import types
from collections.abc import Callable, Collection
from typing import Any

from vit_keras.support.annotated import fault, short
from vit_keras.support.files import in_utf8, read_bounded

# The limit for a file, in bytes. Python's objects take up to 25 times the text, as for
# `[[],[],...]`, so reading any file takes at most 400 MB. A record of 50,000 evaluations is this
# large.
LARGEST_JSON_BYTES = 16 * 2**20
LARGEST_INT = 2**63  # beyond this, arrays and floats raise their own errors
DEEPEST_JSON = 50  # levels of lists and objects; our files and configurations have up to 10
CHECKSUMS = "checksums"  # the field of a record that reveals changes to other fields


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) < LARGEST_INT


TYPES: dict[Any, Callable[[Any], bool]] = {
    bool: lambda value: isinstance(value, bool),
    str: lambda value: isinstance(value, str),
    dict: lambda value: isinstance(value, dict),
    **dict.fromkeys((list, tuple), lambda value: isinstance(value, list)),
    int: _is_whole,
    float: lambda value: isinstance(value, float) or _is_whole(value),
    types.NoneType: lambda value: value is None,
}


def read_json(
    path: str | os.PathLike,
    kind: Any = dict,
    remedy: str = "",
    largest_bytes: int = LARGEST_JSON_BYTES,
    names: Collection[str] | None = None,
) -> Any:
    """Reads a JSON file, and checks its types and its checksums, if any.

    Args:
        path: The file.
        kind: The type of the content, as in `parse_json`.
        remedy: Advice for a damaged or missing file, for the message.
        largest_bytes: The size above which the file is refused.
        names: The names to keep in objects, which saves the memory of the others; None for all.

    Returns:
        The content.

    Raises:
        FileNotFoundError: If there is no file at `path`.
        ValueError: If the file is damaged. The message names it and describes the damage.
        OSError: If the file cannot be opened.

    Example:
        ```python
        rows = read_json("runs/mine/metrics.json", list[dict[str, float]])
        ```
    """
    name = repr(os.fspath(path))
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no file {name}{_sentence(remedy)}")
    try:
        text = read_bounded(path, largest_bytes)
    except ValueError as error:
        raise _damaged(name, error, remedy) from error
    return parse_json(text, name, kind, remedy, names)


def with_checksums(record: dict[str, Any]) -> dict[str, Any]:
    """A record to write as JSON, with a checksum of each field, which `parse_json` compares."""
    return {**record, CHECKSUMS: {name: _checksum(value) for name, value in record.items()}}


def _checksum(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def parse_json(
    text: str | bytes,
    name: str,
    kind: Any = dict,
    remedy: str = "",
    names: Collection[str] | None = None,
) -> Any:
    """Reads JSON from text, and checks the types of its content.

    Args:
        text: The JSON, in UTF-8 if it is bytes.
        name: The name of the text in messages.
        kind: The type of the content: `dict`, `list[str]`, `dict[str, float]`, `int | None` and so
            on; a `TypedDict`, which allows other keys as well; or a dataclass, for all or some of
            its fields. An integer also counts as a `float`, and a list as a `tuple`.
        remedy: Advice for damaged text, for the message.
        names: As in `read_json`.

    Raises:
        ValueError: If the text is not JSON, or holds another type. The message names it.

    Example:
        >>> parse_json('{"step": "7"}', "The note", dict[str, int])
        Traceback (most recent call last):
            ...
        ValueError: The note is damaged (its `step` must be an integer. Received: '7')
    """
    try:
        text = in_utf8(text) if isinstance(text, bytes) else text
    except ValueError as error:
        raise _damaged(name, error, remedy) from error
    try:
        content = load_once(text, names)
    except ValueError as error:
        reason = f"it is not JSON: {error}" if text else "it is empty"
        raise _damaged(name, reason, remedy) from error
    if reason := fault(content, kind, TYPES):
        raise _damaged(name, reason, remedy)
    sums: Any = content.pop(CHECKSUMS, None) if isinstance(content, dict) else None
    for field in set(sums) & set(content) if isinstance(sums, dict) else ():
        if sums[field] != _checksum(content[field]):
            raise _damaged(name, f"its `{field}` was changed after it was written", remedy)
    return content


def load_once(text: str, names: Collection[str] | None = None) -> Any:
    """`json.loads` that raises ValueError for duplicate names and for deep nesting."""
    deep = ValueError(f"it must nest at most {DEEPEST_JSON} lists and objects")
    try:
        parsed = json.loads(text, object_pairs_hook=functools.partial(_once, names))
    except RecursionError as error:
        raise deep from error
    if _depth(parsed) > DEEPEST_JSON:
        raise deep
    return parsed


def _once(names, pairs):
    content = dict(pairs)
    if len(content) < len(pairs):
        ((twice, _),) = collections.Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {short(twice)} appears twice in an object")
    return content if names is None else {n: v for n, v in content.items() if n in names}


def _depth(parsed):
    """The number of levels, computed without recursion."""
    level, depth = [parsed], 0
    while level := [value for value in level if isinstance(value, (dict, list))]:
        depth += 1
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [value for values in inner for value in values]
        if depth > DEEPEST_JSON:
            break
    return depth


def _damaged(name, reason, remedy):
    return ValueError(f"{name} is damaged ({reason}){_sentence(remedy)}")


def _sentence(remedy):
    return f". {remedy}" if remedy else ""
