"""HDF5's library crashes or loops on some damaged texts, so another process reads them first."""

import struct

import pytest

import vit_keras
from tests.fuzz import subjects
from vit_keras.weights.containers import h5_names

pytest.importorskip("h5py")
pytestmark = pytest.mark.once

HEAP, OBJECT = b"GCOL\x01\x00\x00\x00", struct.Struct("<HH4xQ")
# What an attribute with a text holds: its length, the address of its heap, and its number there.
CHANGES = {
    "a number that the heap lacks": (12, b"\xff\xff\xff\x7f"),
    "a longer text": (0, struct.pack("<I", 100_000)),
    "another place": (4, struct.pack("<Q", 8)),
    "a place beyond the end": (4, struct.pack("<Q", 2**63)),
}


def references(data):
    """The places where attributes refer to the heap of the file."""
    heap, at = struct.pack("<Q", data.index(b"GCOL")), 0
    while (at := data.find(heap, at + 1)) >= 0:
        yield at - 4


def is_refused(path, data):
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="a.weights.h5'"):
        vit_keras.open(path, num_heads=2, gelu="exact")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_text_that_no_heap_has_is_refused(tmp_path, change):
    path = subjects.made("vit_keras .weights.h5", tmp_path)
    data, (offset, new) = bytearray(path.read_bytes()), change
    at = list(references(data))[3] + offset
    data[at : at + len(new)] = new
    is_refused(path, data)


@pytest.mark.parametrize("index", [0, 7])
def test_a_heap_that_does_not_end_is_refused(tmp_path, index, monkeypatch):
    monkeypatch.setattr(h5_names, "LONGEST_SECONDS", 5)
    path = subjects.made("vit_keras .weights.h5", tmp_path)
    data = bytearray(path.read_bytes())
    first = data.index(HEAP) + 16
    _, uses, length = OBJECT.unpack_from(data, first)
    OBJECT.pack_into(data, first + OBJECT.size + (length + 7) // 8 * 8, index, uses, 2**64 - 16)
    is_refused(path, data)


def test_a_process_that_ends_is_a_damaged_file(tmp_path, monkeypatch):
    path = subjects.made("vit_keras .weights.h5", tmp_path)
    program = tmp_path / "ends.py"
    program.write_text("import os; os.abort()")
    monkeypatch.setattr(h5_names, "__file__", str(program))
    with pytest.raises(ValueError, match=r"a.weights.h5' is not .* ended with -6"):
        vit_keras.open(path, num_heads=2, gelu="exact")
