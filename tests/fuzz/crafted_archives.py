"""Forged ZIP archives and the headers of NumPy's arrays in them."""

import pathlib
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator

import numpy as np

from tests.fuzz.craft import Craft

NAME = "embedding/kernel.npy"  # of the arrays that are replaced


def rewritten(path: pathlib.Path, change: Callable[[dict], None], **kind) -> None:
    """Writes an archive again with what `change` makes of `{name: content}`."""
    with zipfile.ZipFile(path) as archive:
        members = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    change(members)
    with zipfile.ZipFile(path, "w", **kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def npy(header: bytes, data: bytes = bytes(64), version: bytes = b"\x01\x00") -> bytes:
    """A `.npy` with any header."""
    length = struct.pack("<H" if version == b"\x01\x00" else "<L", len(header))
    return b"\x93NUMPY" + version + length + header + data


def described(descr: str = "'<f4'", order: str = "False", shape: str = "(4, 4)") -> bytes:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()


HEADERS: dict[str, bytes] = {
    "negative shape": npy(described(shape="(-4, -4)")),
    "shape of one minus": npy(described(shape="(-1,)")),
    "shape of truths": npy(described(shape="(True, 16)")),
    "shape of fractions": npy(described(shape="(4.0, 4)")),
    "shape of texts": npy(described(shape="('4',)")),
    "no shape": npy(described(shape="None")),
    "shape of 10**30": npy(described(shape=f"({10**30},)")),
    "shape of 40 axes": npy(described(shape=str((2,) * 4 + (1,) * 66))),
    "no items of 10**12": npy(described("'V0'", shape=f"({10**12},)"), b""),
    "texts without letters": npy(described("'U0'", shape=f"({10**12},)"), b""),
    "empty axis beside a huge one": npy(described(shape=f"(0, {10**12})"), b""),
    "array in each item": npy(described("('<f4', (4,))", shape="(4,)")),
    "huge array in each item": npy(described("('<f4', (100000, 100000))", shape="(1,)")),
    "fields": npy(described("[('a', '<f4'), ('b', '<f4')]", shape="(8,)")),
    "objects": npy(described("'O'", shape="(8,)"), b"\x80\x04cposix\nsystem\n(S'true'\ntR."),
    "dates": npy(described("'<M8[s]'", shape="(8,)")),
    "other byte order": npy(described("'>f4'")),
    "unknown type": npy(described("'q9'")),
    "type is a number": npy(described("7")),
    "type is a dictionary": npy(described("{'names': ['a'], 'formats': ['f4']}")),
    "order is a text": npy(described(order="'x'")),
    "other keys": npy(b"{'descr': '<f4'}\n"),
    "keys of two kinds": npy(b"{1: 2, 'shape': (1,)}\n"),
    "no dictionary": npy(b"[1, 2]\n"),
    "code": npy(b"__import__('os').abort()\n"),
    "many minuses": npy(b"{'descr': '<f4', 'shape': (" + b"-" * 9000 + b"1,)}\n"),
    "many brackets": npy(b"(" * 9000),
    "an open text": npy(b"{'descr': '''<f4"),
    "a bad indent": npy(b"  {\n 'a'\n   : 1}\n x"),
    "NUL": npy(b"{'descr': '<f4\0'}"),
    "no ASCII": npy("{'descr': 'é'}".encode("latin1")),
    "header past the end": npy(described())[:8] + b"\xff\xff" + described(),
    "header of 4 GB": b"\x93NUMPY\x02\x00" + b"\xff" * 4 + described(),
    "version 3": npy(described(), version=b"\x03\x00"),
    "version 9": npy(described(), version=b"\x09\x00"),
    "long header": npy(described() + b" " * 60_000, version=b"\x02\x00"),
    "no header": b"\x93NUMPY",
    "empty": b"",
    "no array": b"hello",
    "NaN": npy(described(shape="(4,)"), np.full(4, np.nan, "<f4").tobytes()),
}


def _header(content: bytes):
    def spoil(path):
        def change(members):
            key = (
                NAME
                if NAME in members
                else "embeddings.npy"
                if "embeddings.npy" in members
                else None
            )
            members[key or next(iter(members))] = content

        rewritten(path, change)

    return spoil


def _compressed(kind: int):
    return lambda path: rewritten(path, lambda members: None, compression=kind)


def _duplicate(path):
    with zipfile.ZipFile(path) as archive:
        name = archive.namelist()[0]
        content = archive.read(name)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr(name, content[:-4] + b"\1\2\3\4")


def _bomb(path):
    """A deflated gigabyte in a megabyte."""
    block = npy(described(shape=f"({2**28},)"), b"")
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("bomb.npy", "w", force_zip64=True) as file,
    ):
        file.write(block)
        for _ in range(2**8):
            file.write(bytes(2**22))


def _patched(signature: bytes, offset: int, content: bytes, last: bool = False):
    """Overwrites bytes after the first, or last, signature in an archive."""

    def spoil(path):
        data = bytearray(path.read_bytes())
        place = (data.rindex if last else data.index)(signature) + offset
        data[place : place + len(content)] = content
        path.write_bytes(bytes(data))

    return spoil


def _many_entries(path):
    with zipfile.ZipFile(path, "a") as archive:
        for i in range(60_000):
            archive.writestr(f"{i}.npy", b"")


def _prefixed(path):
    path.write_bytes(b"#!/bin/sh\n" + path.read_bytes())


def _zip64(path):
    """Sizes of 2**62 bytes in the extra field of ZIP64."""
    with zipfile.ZipFile(path) as archive:
        entry = archive.infolist()[0]
    data = bytearray(path.read_bytes())
    extra = struct.pack("<HHQQ", 1, 16, 2**62, 2**62)
    local = entry.header_offset
    data[local + 28 : local + 30] = struct.pack("<H", len(extra))
    directory = data.index(b"PK\x01\x02")
    data[directory + 20 : directory + 28] = b"\xff" * 8
    data[directory + 30 : directory + 32] = struct.pack("<H", len(extra))
    end = directory + 46 + len(entry.filename.encode())
    old = len(entry.extra)
    data[end : end + old] = extra
    path.write_bytes(bytes(data))


ARCHIVES: dict[str, Callable[[pathlib.Path], None]] = {
    "entry twice": _duplicate,
    "deflate bomb": _bomb,
    "ZIP64 sizes": _zip64,
    "60,000 entries": _many_entries,
    "text before it": _prefixed,
    "bzip2": _compressed(zipfile.ZIP_BZIP2),
    "LZMA": _compressed(zipfile.ZIP_LZMA),
    "deflate": _compressed(zipfile.ZIP_DEFLATED),
    "unknown compression": _patched(b"PK\x01\x02", 10, b"\x63\x00"),
    "encrypted": _patched(b"PK\x01\x02", 8, b"\x01\x00"),
    "UTF-8 name that is none": _patched(b"PK\x01\x02", 8, b"\x00\x08"),
    "name of other bytes": _patched(b"PK\x01\x02", 46, b"\xff\xfe\xff"),
    "directory of 4 GB": _patched(b"PK\x05\x06", 12, b"\xfe\xff\xff\xff", last=True),
    "directory elsewhere": _patched(b"PK\x05\x06", 16, b"\xff\xff\xff\x7f", last=True),
    "entries on 5 disks": _patched(b"PK\x05\x06", 4, b"\x05\x00\x05\x00", last=True),
    "wrong checksum": _patched(b"PK\x01\x02", 16, b"\1\2\3\4"),
    "claims 3 GB": _patched(b"PK\x01\x02", 24, b"\x00\x00\x00\xc0"),
    "claims less": _patched(b"PK\x01\x02", 24, b"\x01\x00\x00\x00"),
    "newer version": _patched(b"PK\x01\x02", 6, b"\xff\x00"),
    "offset elsewhere": _patched(b"PK\x01\x02", 42, b"\x00\x00\x00\x70"),
    "name elsewhere in the local header": _patched(b"PK\x03\x04", 30, b"zz"),
    "long comment": lambda path: path.write_bytes(path.read_bytes() + b"PK\5\6" + bytes(30)),
}


def npz_cases(subject: str) -> Iterator[Craft]:
    for name, content in HEADERS.items():
        yield Craft(subject, f"array: {name}", _header(content))
    yield from archive_cases(subject)


def archive_cases(subject: str) -> Iterator[Craft]:
    for name, spoil in ARCHIVES.items():
        yield Craft(subject, f"archive: {name}", spoil)
