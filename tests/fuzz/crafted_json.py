"""Files whose JSON has a field of another type or value than any project writes."""

import functools
import json
import pathlib
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz.craft import Craft
from tests.fuzz.crafted_archives import rewritten

# As text, since `json` writes neither NaN nor numbers of 5,000 digits.
VALUES = {
    "text": '"x"',
    "no text": '""',
    "control characters": '"\\u001b[2J\\u202e\\u0000"',
    "a lone surrogate": '"\\ud800"',
    "list": "[]",
    "nested list": '[[1], ["x"]]',
    "list of texts": '["x", "y", "z"]',
    "object": "{}",
    "other object": '{"x": {"y": []}}',
    "true": "true",
    "negative": "-1",
    "fraction": "2.5",
    "huge": "1" + 30 * "0",
    "number of 5,000 digits": 5000 * "1",
    "infinite by overflow": "1e999",
    "NaN": "NaN",
    "Infinity": "-Infinity",
    "brackets": 900 * "[" + 900 * "]",
}
# Of the whole file. A BOM is no JSON either, as RFC 8259 has it.
CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "null": b"null",
    "number": b"5",
    "list": b"[]",
    "text": b'"x"',
    "no JSON": b"{'a': 1}",
    "invalid UTF-8": b'{"a": "\xff\xfe"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "brackets": b"[" * 100_000,
    "objects": b'{"a":' * 100_000,
    "zeros": bytes(5000),
    "many lists": b'{"x": [' + b"[]," * 2_000_000 + b"[]]}",
    "many names": b'{"id2label": {%s"x": "y"}}' % b"".join(b'"%d": "a",' % i for i in range(10**6)),
}
PLACE = "\0place\0"


def places(content: Any, prefix: tuple = ()) -> Iterator[tuple]:
    """The path of each field of an object, and of the first item of each list."""
    items = content.items() if isinstance(content, dict) else enumerate(content[:1])
    for key, value in items:
        yield (*prefix, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*prefix, key))


def replaced(content: Any, place: tuple, text: str) -> str:
    """The JSON text of `content` where the value at `place` is `text`."""
    changed = json.loads(json.dumps(content))
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = PLACE
    return json.dumps(changed).replace(json.dumps(PLACE), text)


def spoil_field(file: str, place: tuple, text: str) -> Callable[[pathlib.Path], None]:
    """Replaces a field in one of a folder's JSON files."""

    def spoil(path):
        target = path / file
        target.write_text(replaced(json.loads(target.read_text()), place, text))

    return spoil


def spoil_content(file: str, content: bytes) -> Callable[[pathlib.Path], None]:
    return lambda path: (path / file).write_bytes(content)


def spoil_note(place: tuple, text: str) -> Callable[[pathlib.Path], None]:
    """Replaces a field of the note in a safetensors file."""

    def spoil(path):
        from safetensors import safe_open
        from safetensors.numpy import load_file, save_file

        with safe_open(path, "np") as file:
            metadata = file.metadata()
        note = replaced(json.loads(metadata["vit_keras"]), place, text)
        save_file(load_file(path), path, {"vit_keras": note})  # without hashes

    return spoil


def spoil_keras(place: tuple, text: str) -> Callable[[pathlib.Path], None]:
    """Replaces a field of the configuration in a `.keras` file."""

    def spoil(path):
        def change(members):
            content = replaced(json.loads(members["config.json"]), place, text)
            members["config.json"] = content.encode("utf-8", "surrogatepass")

        rewritten(path, change)

    return spoil


def at(content: Any, place: tuple) -> Any:
    for key in place:
        content = content[key]
    return content


def is_valid(old: Any, text: str) -> bool:
    """Whether JSON text has the type of the old value, so that it may describe another model."""
    if (text.strip("[]") == "" and len(text) > 2) or len(text) > 1000:
        return False
    new = json.loads(text)
    if isinstance(new, (int, float)) and not isinstance(new, bool):
        fine = isinstance(old, (int, float)) and not isinstance(old, bool)
        return (fine or old is None) and abs(new) < 1e9  # which neither NaN nor infinity is
    return old is None or type(new) is type(old)


def crafts(subject: str, label: str, content: Any, spoil: Callable) -> Iterator[Craft]:
    """Each value at each place of `content`; `spoil` takes both and returns the change."""
    for place in places(content):
        for name, text in VALUES.items():
            valid = is_valid(at(content, place), text)
            where = f"{label}: {'.'.join(map(str, place))} is {name}"
            yield Craft(subject, where, spoil(place, text), valid)


def folder_cases(subject: str, folder: pathlib.Path) -> Iterator[Craft]:
    """The fields of each JSON file in a valid folder, and the files as a whole."""
    for file in sorted(folder.glob("*.json")):
        if file.name == "metadata.json":  # KerasHub's, which is not read
            continue
        content, spoil = json.loads(file.read_text()), functools.partial(spoil_field, file.name)
        yield from crafts(subject, file.name, content, spoil)
        for name, data in CONTENTS.items():
            yield Craft(subject, f"{file.name} is {name}", spoil_content(file.name, data))


def note_cases(subject: str, path: pathlib.Path) -> Iterator[Craft]:
    """The fields of the note in a safetensors file."""
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        note = json.loads(file.metadata()["vit_keras"])
    yield from crafts(subject, "note", note, spoil_note)


def keras_cases(subject: str, path: pathlib.Path) -> Iterator[Craft]:
    """The fields of the configuration in a `.keras` file."""
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json"))
    yield from crafts(subject, "config.json", config, spoil_keras)
