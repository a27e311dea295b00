"""Damage to the bytes of a file that a seed draws, and forged values of the JSON in a file."""

import json
import pathlib
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import yaml
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

# How often each kind is drawn. Half of the damage is one bit, which is the hardest to see.
SHARES = {"flip": 0.5, "flips": 0.05, "cut": 0.15}
SHARES |= dict.fromkeys(("overwrite", "zeros", "insert", "remove", "swap", "repeat"), 0.05)


def damaged(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """Damaged bytes, which differ, and the change in words."""
    changed = data
    while changed == data:
        kind = str(rng.choice(list(SHARES), p=list(SHARES.values())))
        length = int(2 ** rng.uniform(0, 9))
        start, other = (min(int(x * len(data)), max(len(data) - 1, 0)) for x in rng.random(2))
        inner = np.random.default_rng(int(rng.integers(2**31)))
        changed = _changed(kind, data, start, other, length, inner)
    return changed, f"{kind} of {length} at {start}"


def _changed(kind, data, start, other, length, rng):
    before, block, after = data[:start], data[start : start + length], data[start + length :]
    match kind:
        case "flip":
            return _flipped(data, [(start, length % 8)])
        case "flips":
            places = rng.integers(len(data), size=min(length, 64))
            return _flipped(data, [(place, int(rng.integers(8))) for place in places])
        case "cut":
            return before
        case "overwrite":
            return (before + rng.bytes(length) + after)[: len(data)]
        case "zeros":
            return before + bytes(len(block)) + after
        case "insert":
            return before + rng.bytes(length) + block + after
        case "remove":
            return before + after
        case "repeat":
            return before + block + block + after
    first, second = sorted((start, other))  # two blocks are swapped
    length = min(length, second - first, len(data) - second)
    a, b = data[first : first + length], data[second : second + length]
    between, rest = data[first + length : second], data[second + length :]
    return data[:first] + b + between + a + rest


def _flipped(data, bits):
    changed = bytearray(data)
    for place, bit in bits:
        changed[place] ^= 1 << bit
    return bytes(changed)


# As text, since `json` writes no numbers of 5,000 digits.
VALUES = ['"x"', '""', '"\\u001b[2J\\u202e\\u0000"', '"\\ud800"', "[]", '[[1], ["x"]]', "{}"]
VALUES += ['["x", "y", "z"]', '{"x": {"y": []}}', "null", "true", "-1", "0", "2.5", "1" + 31 * "0"]
VALUES += [5000 * "1", "1e999", "NaN", "-Infinity", 900 * "[" + 900 * "]"]
# Of a whole file. A BOM is no JSON either, as RFC 8259 has it.
CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "null": b"null",
    "list": b"[]",
    "other object": b'{"x": {"y": []}}',
    "no JSON": b"{'a': 1",
    "invalid UTF-8": b'{"a": "\xff\xfe"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "brackets": b"[" * 100_000,
    "many lists": b'{"x": [' + b"[]," * 6_000_000 + b"[]]}",
}
PLACE = "\0place\0"


def texts_of(path: pathlib.Path) -> dict[str, str]:
    """The JSON of a subject by its names: files of a folder, a note or a configuration."""
    if path.is_dir():  # KerasHub's metadata.json is not read
        files = [file for file in sorted(path.glob("*.json")) if file.name != "metadata.json"]
        return {file.name: file.read_text() for file in files}
    if path.suffix == ".safetensors":
        with safe_open(path, "np") as file:
            return {"note": file.metadata()["vit_keras"]}
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            return {"config.json": archive.read("config.json").decode()}
    return {path.name: path.read_text()} if path.suffix in (".json", ".yaml") else {}


def put_text(path: pathlib.Path, name: str, text: str | bytes) -> None:
    """Replaces one of the texts; of a safetensors file, hashes go too."""
    content = text if isinstance(text, bytes) else text.encode()
    if path.suffix == ".safetensors":
        save_file(load_file(path), path, {"vit_keras": content.decode()})
    elif path.suffix == ".keras":
        rewritten(path, lambda members: members.update({name: content}))
    else:
        (path / name if path.is_dir() else path).write_bytes(content)


def rewritten(path: pathlib.Path, change: Callable[[dict], None], **kind) -> None:
    """Writes an archive again with what `change` makes of `{name: content}`."""
    with zipfile.ZipFile(path) as archive:
        members = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    change(members)
    with zipfile.ZipFile(path, "w", **kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def places(content: Any, prefix: tuple = ()) -> Iterator[tuple]:
    """The path of each field of an object and of each item of a list."""
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in items:
        yield (*prefix, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*prefix, key))


def replaced(content: Any, place: tuple, text: str) -> str:
    """The JSON text of `content` where the value at `place` is `text`."""
    changed = json.loads(json.dumps(content))
    at(changed, place[:-1])[place[-1]] = PLACE
    return json.dumps(changed).replace(json.dumps(PLACE), text)


def at(content: Any, place: tuple) -> Any:
    for key in place:
        content = content[key]
    return content


def is_valid(old: Any, text: str) -> bool:
    """Whether JSON text has the type of the old value, so that it may describe another model."""
    if len(text) > 1000:
        return False
    new = json.loads(text)
    if isinstance(new, (int, float)) and not isinstance(new, bool):
        fine = isinstance(old, (int, float)) and not isinstance(old, bool)
        return (fine or old is None) and abs(new) < 1e9  # which neither NaN nor infinity is
    return None in (old, new) or type(new) is type(old)


def forged(path: pathlib.Path, rng: np.random.Generator) -> tuple[str, bool]:
    """Puts another value into a field of JSON; returns the change, and whether it may be valid."""
    texts = texts_of(path)
    name = str(rng.choice(list(texts)))
    content = (yaml.safe_load if path.suffix == ".yaml" else json.loads)(texts[name])
    every = list(places(content))
    place, text = every[int(rng.integers(len(every)))], str(rng.choice(VALUES))
    put_text(path, name, replaced(content, place, text))
    where = f"{name}: {'.'.join(map(str, place))} is {text[:30]}"
    return where, path.suffix == ".yaml" or is_valid(at(content, place), text)
