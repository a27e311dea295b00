"""Forged headers of safetensors files, and wrong bytes where a file of weights is expected."""

import json
import pathlib
import struct
from collections.abc import Callable, Iterator

from tests.fuzz.craft import Craft
from vit_keras.weights.containers.checks import KEY


def parted(path: pathlib.Path) -> tuple[dict, bytes]:
    """The header of a safetensors file, without its hashes, and its data."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"].pop(KEY, None)
    return header, data[8 + length :]


def joined(header: bytes, data: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def _header(change: Callable[[dict, list], None]):
    """Rewrites the header; `change` takes it and the names of its tensors."""

    def spoil(path):
        header, data = parted(path)
        change(header, [name for name in header if name != "__metadata__"])
        path.write_bytes(joined(json.dumps(header).encode(), data))

    return spoil


def _entry(**fields):
    """Replaces fields of the first tensor's entry."""
    return _header(lambda header, names: header[names[0]].update(fields))


def _overlap(header, names):
    header[names[1]]["data_offsets"] = header[names[0]]["data_offsets"]


def _hole(header, names):
    last = max(names, key=lambda name: header[name]["data_offsets"][1])
    start, stop = header[last]["data_offsets"]
    header[last]["data_offsets"] = [start + 4, stop + 4]


def _twice(path):
    """The name of a tensor twice, with the axes of its shape reversed the second time."""
    header, data = parted(path)
    name = next(name for name, row in header.items() if len(row.get("shape", ())) == 2)
    row = {**header[name], "shape": header[name]["shape"][::-1]}
    text = json.dumps(header)[:-1] + f", {json.dumps(name)}: {json.dumps(row)}}}"
    path.write_bytes(joined(text.encode(), data))


def _length(length: int):
    def spoil(path):
        header, data = parted(path)
        path.write_bytes(joined(json.dumps(header).encode(), data, length))

    return spoil


def _text(text: bytes):
    return lambda path: path.write_bytes(joined(text, parted(path)[1]))


def _metadata(value):
    return _header(lambda header, names: header.update(__metadata__=value))


def _many(path):
    """A header of 200,000 empty tensors."""
    header, data = parted(path)
    row = {"dtype": "F32", "shape": [0], "data_offsets": [len(data), len(data)]}
    header |= {f"x{i}": row for i in range(200_000)}
    path.write_bytes(joined(json.dumps(header).encode(), data))


HEADERS: dict[str, Callable[[pathlib.Path], None]] = {
    "overlapping tensors": _header(_overlap),
    "hole between tensors": _header(_hole),
    "tensor twice": _twice,
    "200,000 tensors": _many,
    "offsets outside": _entry(data_offsets=[0, 10**12], shape=[25 * 10**10]),
    "offsets of 2**64": _entry(data_offsets=[0, 2**64], shape=[2**62]),
    "negative offsets": _entry(data_offsets=[-4, 0]),
    "offsets backwards": _entry(data_offsets=[8, 4]),
    "one offset": _entry(data_offsets=[0]),
    "offsets are texts": _entry(data_offsets=["0", "4"]),
    "negative shape": _entry(shape=[-1, 4]),
    "shape of 2**63": _entry(shape=[2**63, 2]),
    "shape of fractions": _entry(shape=[1.5]),
    "shape is a text": _entry(shape="4"),
    "no items of 10**12": _entry(shape=[0, 10**12], data_offsets=[0, 0]),
    "unknown type": _entry(dtype="F31"),
    "type is a number": _entry(dtype=7),
    "type of another width": _entry(dtype="F64"),
    "bool": _entry(dtype="BOOL"),
    "other field": _entry(x=1),
    "entry is a list": _header(lambda header, names: header.update({names[0]: []})),
    "entry is null": _header(lambda header, names: header.update({names[0]: None})),
    "empty name": _header(lambda header, names: header.update({"": header.pop(names[0])})),
    "name of control characters": _header(
        lambda header, names: header.update({"\x1b[2J\0\u202e": header.pop(names[0])})
    ),
    "metadata is a list": _metadata([]),
    "metadata of numbers": _metadata({"vit_keras": 5}),
    "metadata of brackets": _metadata({"vit_keras": "[" * 100_000}),
    "note is null": _metadata({"vit_keras": "null"}),
    "note is a number": _metadata({"vit_keras": "5"}),
    "note is no JSON": _metadata({"vit_keras": "{'a'}"}),
    "note of lists": _metadata({"vit_keras": '{"architecture": [], "numerics": []}'}),
    "note of nothing": _metadata({"vit_keras": '{"architecture": {}, "numerics": {}}'}),
    "header longer than the file": _length(10**6),
    "header of 2**63 bytes": _length(2**63),
    "header of 2**64 - 1 bytes": _length(2**64 - 1),
    "header of no bytes": _length(0),
    "header cut": _length(20),
    "header of brackets": _text(b"[" * 100_000),
    "header of objects": _text(b'{"a":' * 100_000),
    "header is null": _text(b"null"),
    "header is no UTF-8": _text(b'{"\xff": 1}'),
    "header of nothing": _text(b"{}"),
}
BYTES: dict[str, bytes] = {
    "empty": b"",
    "one byte": b"P",
    "zeros": bytes(5000),
    "text": b"hello" * 100,
    "page of a server": b"<!DOCTYPE html><html><body>404</body></html>",
    "pointer of git": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
    "gzip": b"\x1f\x8b\x08" + bytes(200),
    "end of an archive": b"PK\x05\x06" + bytes(18),
    "signature of HDF5": b"\x89HDF\r\n\x1a\n" + bytes(600),
    "pickle": b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00trueq\x00\x85q\x01Rq\x02.",
}


def header_cases(subject: str) -> Iterator[Craft]:
    for name, spoil in HEADERS.items():
        yield Craft(subject, f"header: {name}", spoil)


def bytes_cases(subject: str) -> Iterator[Craft]:
    """Files that are no file of weights at all, under each of their names."""
    for name, content in BYTES.items():
        yield Craft(
            subject, f"file: {name}", lambda path, content=content: path.write_bytes(content)
        )
