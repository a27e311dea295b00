"""HDF5's library reads texts from where attributes say, so these are looked at before."""

import contextlib
import io
import struct

import numpy as np
import pytest

from tests.fuzz import subjects
from vit_keras import weights
from vit_keras.weights.containers.checks import DamagedFile
from vit_keras.weights.containers.h5_heaps import check_heaps
from vit_keras.weights.containers.h5_texts import TEXT, Texts

h5py = pytest.importorskip("h5py")
pytestmark = pytest.mark.once


def places_of(data, text):
    """All places of some bytes."""
    at = data.find(text)
    while at >= 0:
        yield at
        at = data.find(text, at + 1)


def references(data):
    """The places where attributes hold a length, the address of a heap and a number."""
    heap = struct.pack("<Q", data.index(b"GCOL"))
    return [at - 4 for at in places_of(data, heap)]


CHANGES = {
    "a number that the heap lacks": (12, b"\xff\xff\xff\x7f"),
    "another number": (12, struct.pack("<I", 4000)),
    "a longer text": (0, struct.pack("<I", 100_000)),
    "another place": (4, struct.pack("<Q", 8)),
    "a place beyond the end": (4, struct.pack("<Q", 2**63)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("which", [3, 7, -1])
def test_a_text_that_no_heap_has_is_refused(tmp_path, change, which):
    path = subjects.made("vit_keras .weights.h5", tmp_path)
    data = bytearray(path.read_bytes())
    offset, new = change
    at = references(data)[which] + offset
    data[at : at + len(new)] = new
    path.write_bytes(bytes(data))
    with pytest.raises(
        ValueError, match=r"a.weights.h5' is damaged: the text '(name|vit_keras_sha256)' of /"
    ):
        weights.from_checkpoint(path, num_heads=2, gelu="exact")


@pytest.mark.parametrize("byte", range(-4, len(TEXT)))
def test_a_changed_type_is_refused_or_read_alike(tmp_path, byte):
    path = subjects.made("vit_keras .weights.h5", tmp_path)
    data = bytearray(path.read_bytes())
    at = list(places_of(data, TEXT))[3] + byte
    data[at] ^= 0xF6
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match=r"a.weights.h5'"):
        weights.from_checkpoint(path, num_heads=2, gelu="exact")


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_texts_of_either_form_of_header_are_found(libver):
    memory, rng = io.BytesIO(), np.random.default_rng(4)
    with h5py.File(memory, "w", libver=libver) as file:
        for i in range(30):
            group = file.create_group(f"group{i}")
            for name in ("name", "a", "title")[: 1 + i % 3]:
                group.attrs[name] = "ü" * int(rng.integers(0, 900))
            group.attrs["number"] = 7
            group["numbers"] = np.arange(i)
    heaps = check_heaps(memory, "memory")
    with contextlib.closing(h5py.File(memory, "r")) as file:
        texts = Texts(file, memory, heaps, "memory")
        for group in (file, *file.values(), *(group["numbers"] for group in file.values())):
            texts.check(group)
        emptied = Texts(file, memory, {place: {} for place in heaps}, "memory")
        with pytest.raises(DamagedFile, match="the text '(name|a|title)' of /group29 is"):
            emptied.check(file["group29"])
