"""HDF5's library crashes or loops on some damaged texts, so another process reads them first."""

import struct

import pytest

import vit_keras
from tests.fuzz import subjects
from vit_keras.weights.containers import h5_names

pytestmark = pytest.mark.once

HEAP, OBJECT = b"GCOL\x01\x00\x00\x00", struct.Struct("<HH4xQ")


@pytest.fixture
def file(tmp_path):
    return subjects.made("vit_keras .weights.h5", tmp_path)


def refuse(path, message="", data=None):
    if data is not None:
        path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match=f"a.weights.h5'{message}"):
        vit_keras.open(path, num_heads=2, gelu="exact")


# What an attribute with a text holds: its length, the address of its heap, and its number there.
@pytest.mark.parametrize(
    ("offset", "new"),
    [
        (12, b"\xff\xff\xff\x7f"),  # a number that the heap lacks
        (0, struct.pack("<I", 100_000)),  # a longer text
        (4, struct.pack("<Q", 8)),  # another place
        (4, struct.pack("<Q", 2**63)),  # a place beyond the end
    ],
)
def test_a_text_that_no_heap_has_is_refused(file, offset, new):
    data = bytearray(file.read_bytes())
    heap, at = struct.pack("<Q", data.index(b"GCOL")), 0
    for _ in range(4):  # the fourth attribute that refers to the heap of the file
        at = data.find(heap, at + 1)
    at += offset - 4
    data[at : at + len(new)] = new
    refuse(file, data=data)


def test_a_heap_that_does_not_end_is_refused(file, monkeypatch):
    monkeypatch.setattr(h5_names, "LONGEST_SECONDS", 3)
    data = bytearray(file.read_bytes())
    first = data.index(HEAP) + 16
    _, uses, length = OBJECT.unpack_from(data, first)
    OBJECT.pack_into(data, first + OBJECT.size + (length + 7) // 8 * 8, 7, uses, 2**64 - 16)
    refuse(file, data=data)


def test_a_process_that_ends_is_a_damaged_file(file, tmp_path, monkeypatch):
    program = tmp_path / "ends.py"
    program.write_text("import os; os.abort()")
    monkeypatch.setattr(h5_names, "__file__", str(program))
    refuse(file, " is not .* ended with -6")
