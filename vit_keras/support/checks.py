"""Checks of arguments and of values from JSON; reads JSON and describes the damage in it."""

import collections
import dataclasses
import functools
import hashlib
import itertools
import json
import numbers
import operator
import os
import reprlib
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any

from vit_keras.support.files import read_bounded

LARGEST_INT = 2**31  # of sizes and counts
LARGEST_FLOAT = 1e30  # products of such numbers still fit into float32


def pair(value, name: str) -> tuple[int, int]:
    """Returns `value` as (height, width); an int is used for both.

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


def as_tuple(value: Any) -> Any:
    """A list, and the lists in it, as tuples; any other value as it is."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


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
        if name in values and (reason := fault(values[name], hint, SIMPLE, name)):
            raise ValueError(reason.removeprefix("its "))


def check_types(instance: Any) -> None:
    """Like `check_annotated`, for the fields of a dataclass."""
    fields = dataclasses.fields(instance)
    check_annotated({field.name: getattr(instance, field.name) for field in fields}, type(instance))


def is_text(value: Any) -> bool:
    """Whether a value is a string without lone surrogates, which cannot be encoded."""
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
    """Returns a text for any value, short enough for a message."""
    return reprlib.repr(value)


def listed(names: Iterable[str], most: int = 5) -> str:
    """Joins the first few names and counts the rest."""
    names = list(names)
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def differences(recorded: Mapping, now: Mapping, names: Iterable[str]) -> list[str]:
    """Describes which of the named values differ between a record and the present."""
    return [
        f"{name}: {recorded.get(name)!r} there, {now.get(name)!r} here"
        for name in names
        if recorded.get(name) != now.get(name)
    ]


_hints = functools.cache(typing.get_type_hints)


def _is(value, kind):
    return isinstance(value, kind) and not isinstance(value, bool)


def fault(value: Any, kind: Any, simple: Mapping[Any, tuple], place: str = "") -> str:
    """Describes how a value differs from a type; empty if it does not.

    A list may replace a tuple. An object may replace a dataclass, some of whose fields it may lack,
    or a `TypedDict`, which allows other keys as well.

    Args:
        value: The value.
        kind: The type, such as `int`, `dict[str, float]`, `tuple[int, ...] | None`, or a dataclass.
        simple: For each type, the rule and the test of its values; other types have none.
        place: The path of the value in the whole content, for the message.
    """
    return next(_faults(value, kind, simple, place), "")


def _faults(value, kind, simple, place) -> Iterator[str]:
    plain, kinds = typing.get_origin(kind) or kind, typing.get_args(kind)
    its = f"its `{place}`" if place else "it"
    is_record = dataclasses.is_dataclass(kind)
    if plain in (typing.Union, types.UnionType):
        each = {of: fault(value, of, simple, place) for of in kinds}
        if "" not in each.values():  # a type with the same origin tells what is wrong inside
            same = [of for of in kinds if value and typing.get_origin(of) is type(value)]
            yield each[(*same, *kinds)[0]]
    elif plain is typing.Literal:
        if not any(value == choice and type(value) is type(choice) for choice in kinds):
            yield f"{its} must be one of {', '.join(map(repr, kinds))}. Received: {short(value)}"
    elif is_record and isinstance(value, kind):
        return
    elif is_record or typing.is_typeddict(kind):
        yield from _faults(value, dict, simple, place)
        fields, required = _hints(kind), getattr(kind, "__required_keys__", ())
        for key, of in fields.items():
            if key in value:
                yield from _faults(value[key], of, simple, _join(place, key))
            elif key in required:
                yield f"{its} lacks `{key}`"
        if is_record and (others := sorted({*value} - {*fields})):
            yield f"{its} must not have a field {others[0]!r}"
    elif plain in simple and not simple[plain][1](value):
        yield f"{its} must be {simple[plain][0]}. Received: {short(value)}"
    elif kinds and plain in (dict, list, tuple):
        items = value.items() if plain is dict else enumerate(value)
        of_items: Iterable = itertools.repeat(kinds[0] if plain is tuple else kinds[-1])
        if plain is tuple and kinds[-1] is not ...:
            of_items = kinds
            if len(value) != len(kinds):
                yield f"{its} must have {len(kinds)} items. Received: {len(value)}"
        for (key, item), of in zip(items, of_items):
            yield from _faults(item, of, simple, _join(place, key))


def fault_inside(value: dict, kind: Any, simple: Mapping, apart=(), place: str = "") -> str:
    """Like `fault`, for an object and the objects in it, except those whose name is in `apart`."""
    inner = (
        fault_inside(item, kind, simple, apart, _join(place, name))
        for name, item in value.items()
        if isinstance(item, dict) and name not in apart
    )
    return fault(value, kind, simple, place) or next(filter(None, inner), "")


def _join(place, key):
    key = key if isinstance(key, str) else f"[{key}]"
    return f"{place}{'' if key.startswith('[') or not place else '.'}{key}"


# Types of JSON's values.
Count = typing.NewType("Count", int)
Size = typing.NewType("Size", int)
Positive = typing.NewType("Positive", float)
Labels = typing.NewType("Labels", dict)


def _are_labels(value):
    is_object = isinstance(value, dict) and all(map(str.isdecimal, value))
    return is_object and all(map(is_text, value.values()))


# The rule for the values of a type, and their test.
SIMPLE: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    Count: ("an integer of at least 0", lambda value: is_int(value) and value >= 0),
    Size: ("an integer of at least 1", lambda value: is_int(value) and value > 0),
    Positive: ("a number above 0", lambda value: is_number(value) and value > 0),
    Labels: ("an object of strings, with class numbers as keys", _are_labels),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    dict: ("an object", lambda value: isinstance(value, dict)),
    int: ("an integer", is_int),
    float: ("a number", is_number),
    str: ("a string", is_text),
    tuple: ("a list", lambda value: isinstance(value, list | tuple)),
    types.NoneType: ("null", lambda value: value is None),
}
FILLED = {**SIMPLE, list: ("a list", lambda value: isinstance(value, list) and bool(value))}


# A field, a test of its values, and the rule, such as "at least 1"; or several fields, a test of
# their values, and a clause, such as "give only one of them".
Rule = tuple[str | tuple[str, ...], Callable[..., Any], str]

NEEDS = (lambda value, needed: needed or not value, "the first needs the second")
ONE_OF_TWO = (lambda one, other: not (one and other), "give only one of them")


def needs(first: str, second: str, *allowed: Any) -> Rule:
    """Returns the rule that, if a field is given, another one must have an allowed value."""
    words = " or ".join("null" if value is None else str(value) for value in allowed)
    holds = lambda one, other: not one or other in allowed
    return (first, second), holds, f"the first needs the second to be {words}"


def check_rules(config: Any, section: str | None, rules: Iterable[Rule]) -> None:
    """Checks the fields of a configuration. A single field may also be None.

    Args:
        config: The dataclass of a section, or `Config`.
        section: The section's name in `Config`, which prefixes the option; None for `Config`
            itself.
        rules: A row for each field, or for several that depend on each other.

    Raises:
        ValueError: If fields break their rule.
    """
    prefix = f"{section}." if section else ""
    for fields, holds, rule in rules:
        names = (fields,) if isinstance(fields, str) else fields
        values = [operator.attrgetter(name)(config) for name in names]
        if not (values == [None] or holds(*values)):
            options = " and ".join(f"`{prefix}{name}`" for name in names)
            received = " and ".join(textwrap.shorten(str(value), 200) for value in values)
            says = ": " if len(names) > 1 else " must be "
            raise ValueError(f"{options}{says}{rule}. Received: {received}")


def check_defaults(run: Any, names: Collection[str], where: str) -> None:
    """Checks that some fields of a run's `Config` have their defaults.

    Args:
        run: The `Config`.
        names: The dotted names of the fields.
        where: The option that requires these defaults, and the reason, for the message.

    Raises:
        ValueError: If a field has another value. The message names all such fields.
    """
    here, default = (
        {name: operator.attrgetter(name)(x) for name in names} for x in (run, type(run))
    )
    if changed := [name for name in here if here[name] != default[name]]:
        shown = lambda value: value if isinstance(value, str) else json.dumps(value)
        needed = " and ".join(f"`{name}` must be {shown(default[name])}" for name in changed)
        received = ", ".join(f"{name}={shown(here[name])}" for name in changed)
        raise ValueError(f"{needed} with {where}. Received: {received}")


# The limit for a file, in bytes. Python's objects take up to 25 times the text, as for
# `[[],[],...]`, so reading any file takes at most 400 MB. A record of 50,000 evaluations is this
# large.
LARGEST_JSON_BYTES = 16 * 2**20

DEEPEST_JSON = 50  # levels of lists and objects; our files and configurations have up to 10


class DamagedFile(ValueError):
    """A file whose content contradicts its name, its header or the form of such files."""


CHECKSUMS = "checksums"  # the field of a record that reveals changes to other fields


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) < 2**63  # beyond, arrays and floats raise errors


TYPES = {  # of files that this package wrote
    **SIMPLE,
    str: ("a string", lambda value: isinstance(value, str)),
    **dict.fromkeys((list, tuple), ("a list", lambda value: isinstance(value, list))),
    int: ("an integer", _is_whole),
    float: ("a number", lambda value: isinstance(value, float) or _is_whole(value)),
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
    return parse_json(text, name, kind, remedy, largest_bytes, names)


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
    largest_bytes: int = LARGEST_JSON_BYTES,
    names: Collection[str] | None = None,
) -> Any:
    """Reads JSON from text, and checks the types of its values.

    Args:
        text: The JSON, in UTF-8 if it is bytes.
        name: The name of the text in messages.
        kind: The type of the content: `dict`, `list[str]`, `dict[str, float]`, `int | None` and so
            on; a `TypedDict`, which allows other keys as well; or a dataclass, for all or some of
            its fields. An integer also counts as a `float`, and a list as a `tuple`.
        remedy: Advice for damaged text, for the message.
        largest_bytes: As in `read_json`.
        names: As in `read_json`.

    Raises:
        ValueError: If the text is not JSON, or holds another type. The message names it.

    Example:
        >>> parse_json('{"step": "7"}', "The note", dict[str, int])
        Traceback (most recent call last):
            ...
        ValueError: The note is damaged (its `step` must be an integer. Received: '7')
    """
    if len(text) > largest_bytes:
        reason = f"its {len(text)} bytes are more than {largest_bytes}"
        raise _damaged(name, reason, remedy)
    try:
        content = load_once(text.decode("utf-8") if isinstance(text, bytes) else text, names)
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
    try:
        parsed = json.loads(text, object_pairs_hook=functools.partial(_once, names))
        is_deep = _depth([parsed]) > DEEPEST_JSON
    except RecursionError:
        is_deep = True
    if is_deep:
        raise ValueError(f"it must nest at most {DEEPEST_JSON} levels of lists and objects")
    return parsed


def _once(names, pairs):
    content = dict(pairs)
    if len(content) < len(pairs):
        ((twice, _),) = collections.Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the name {short(twice)} appears twice in an object")
    return content if names is None else {n: v for n, v in content.items() if n in names}


def _depth(values):
    """The number of levels of lists and objects among some values."""
    inner = (value for value in values if isinstance(value, (dict, list)))
    return max((1 + _depth(v.values() if isinstance(v, dict) else v) for v in inner), default=0)


def _damaged(name, reason, remedy):
    return DamagedFile(f"{name} is damaged ({reason}){_sentence(remedy)}")


def _sentence(remedy):
    return f". {remedy}" if remedy else ""
