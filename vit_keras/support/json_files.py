"""Reads JSON that this package wrote, and describes the damage if a file was changed since."""

import collections
import dataclasses
import hashlib
import json
import os
import types
import typing
from typing import Any

from vit_keras.support.annotated import short

# The limit for a file, in bytes. Python's objects take up to 25 times the text, as for
# `[[],[],...]`, so reading any file takes at most 400 MB. A record of 50,000 evaluations is this
# large.
LARGEST_JSON_BYTES = 16 * 2**20
LARGEST_INT = 2**63  # beyond this, arrays and floats raise their own errors
DEEPEST_JSON = 50  # levels of lists and objects; our files and configurations have up to 10
CHECKSUMS = "checksums"  # the field of a record that reveals changes to other fields
NAMES = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    dict: "an object",
    list: "a list",
    types.NoneType: "null",
}


def read_json(
    path: str | os.PathLike,
    kind: Any = dict,
    remedy: str = "",
    largest_bytes: int = LARGEST_JSON_BYTES,
) -> Any:
    """Reads a JSON file, and checks its types and its checksums, if any.

    Args:
        path: The file.
        kind: The type of the content, as in `parse_json`.
        remedy: Advice for a damaged or missing file, for the message.
        largest_bytes: The size above which the file is refused.

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
    if not os.path.isfile(path):  # opening a pipe might block forever
        raise _damaged(name, "it is not a file", remedy)
    if (size := os.path.getsize(path)) > largest_bytes:
        raise _damaged(name, f"its {size} bytes are more than {largest_bytes}", remedy)
    with open(path, "rb") as file:
        return parse_json(file.read(largest_bytes), name, kind, remedy)


def with_checksums(record: dict[str, Any]) -> dict[str, Any]:
    """A record to write as JSON, with a checksum of each field, which `parse_json` compares."""
    return {**record, CHECKSUMS: {name: _checksum(value) for name, value in record.items()}}


def _checksum(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def parse_json(text: str | bytes, name: str, kind: Any = dict, remedy: str = "") -> Any:
    """Reads JSON from text, and checks the types of its content.

    Args:
        text: The JSON, in UTF-8 if it is bytes.
        name: The name of the text in messages.
        kind: The type of the content: `dict`, `list[str]`, `dict[str, float]`, `int | None` and so
            on; a `TypedDict`, which allows other keys as well; or a dataclass, for all or some of
            its fields. An integer also counts as a `float`, and a list as a `tuple`.
        remedy: Advice for damaged text, for the message.

    Raises:
        ValueError: If the text is not JSON, or holds another type. The message names it.

    Example:
        >>> parse_json('{"step": "7"}', "The note", dict[str, int])
        Traceback (most recent call last):
            ...
        ValueError: The note is damaged (its `step` must be an integer. Received: '7')
    """
    try:
        content = load_once(text.decode("utf-8") if isinstance(text, bytes) else text)
    except UnicodeDecodeError as error:
        raise _damaged(name, f"it is not UTF-8 from byte {error.start} on", remedy) from error
    except ValueError as error:
        raise _damaged(
            name, f"it is not JSON: {error}" if text else "it is empty", remedy
        ) from error
    if fault := _fault(content, kind):
        raise _damaged(name, fault, remedy)
    sums: Any = content.pop(CHECKSUMS, None) if isinstance(content, dict) else None
    for field in set(sums) & set(content) if isinstance(sums, dict) else ():
        if sums[field] != _checksum(content[field]):
            raise _damaged(name, f"its `{field}` was changed after it was written", remedy)
    return content


def load_once(text: str) -> Any:
    """`json.loads` that raises ValueError for duplicate names and for deep nesting."""
    deep = ValueError(f"it must nest at most {DEEPEST_JSON} lists and objects")
    try:
        parsed = json.loads(text, object_pairs_hook=_once)
    except RecursionError as error:
        raise deep from error
    if _depth(parsed) > DEEPEST_JSON:
        raise deep
    return parsed


def _once(pairs):
    content = dict(pairs)
    if len(content) < len(pairs):
        ((twice, _),) = collections.Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {short(twice)} appears twice in an object")
    return content


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


def _fault(value: Any, kind: Any, place: str = "") -> str:
    """Describes how a value differs from a type; empty if it does not."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return ""
    if origin in (typing.Union, types.UnionType):
        each = [_fault(value, argument, place) for argument in arguments]
        return "" if "" in each else each[0]
    if typing.is_typeddict(kind) or dataclasses.is_dataclass(kind):
        return _fault(value, dict, place) or _fault_of_record(value, kind, place)
    if origin is tuple:
        return _fault(value, list, place) or _fault_of_tuple(value, arguments, place)
    plain = origin or kind
    accepted: Any = (int, float) if plain is float else plain
    is_other = isinstance(value, bool) and plain is not bool
    is_huge = type(value) is int and abs(value) >= LARGEST_INT
    if not isinstance(value, accepted) or is_other or is_huge:
        shown = repr(value)
        received = shown if len(shown) <= 60 else f"{shown[:60]}..."
        return f"{_place(place)} must be {NAMES[plain]}. Received: {received}"
    if not arguments:
        return ""
    items: Any = value.items() if plain is dict else enumerate(value)
    faults = (_fault(item, arguments[-1], _join(place, key)) for key, item in items)
    return next(filter(None, faults), "")


def _fault_of_tuple(value, kinds, place):
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(value) != len(kinds):
        return f"{_place(place)} must have {len(kinds)} items. Received: {len(value)}"
    faults = (_fault(*item, _join(place, i)) for i, item in enumerate(zip(value, kinds)))
    return next(filter(None, faults), "")


def _fault_of_record(value, kind, place):
    fields = typing.get_type_hints(kind)
    for key, of_key in fields.items():
        if key in value:
            if fault := _fault(value[key], of_key, _join(place, key)):
                return fault
        elif key in getattr(kind, "__required_keys__", ()):
            return f"{_place(place)} lacks `{key}`"
    if dataclasses.is_dataclass(kind) and (others := sorted({*value} - {*fields})):
        return f"{_place(place)} has no field {others[0]!r}"
    return ""


def _place(place):
    return f"its `{place}`" if place else "it"


def _join(place, key):
    key = key if isinstance(key, str) else f"[{key}]"
    return f"{place}{'' if key.startswith('[') or not place else '.'}{key}"
