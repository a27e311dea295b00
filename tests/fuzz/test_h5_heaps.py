"""HDF5's library reads some damaged heaps of texts for ever, so they are refused before."""

import numpy as np
import pytest

from tests.fuzz import subjects
from vit_keras import weights
from vit_keras.weights.containers.h5_heaps import HEADER, OBJECT, SIGNATURE, check_heaps

pytest.importorskip("h5py")
pytestmark = pytest.mark.once


@pytest.mark.parametrize("size", [0, 8, 2**64 - 16, 2**63])
@pytest.mark.parametrize("index", [0, 7])
def test_a_heap_whose_objects_do_not_end_is_refused(tmp_path, size, index):
    path = subjects.made("vit_keras .weights.h5", tmp_path)
    data = bytearray(path.read_bytes())
    first = data.index(SIGNATURE) + HEADER.size
    _, references, length = OBJECT.unpack_from(data, first)
    second = first + OBJECT.size + (length + 7) // 8 * 8
    if (index, size) == (7, 0) or (index, size) == (7, 8):
        size = 2**40  # an object may be as small as that
    OBJECT.pack_into(data, second, index, references, size)
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="a.weights.h5' is damaged: the texts at byte"):
        weights.from_checkpoint(path, num_heads=2, gelu="exact")


def test_heaps_of_any_texts_are_whole(tmp_path):
    import h5py

    rng = np.random.default_rng(4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for i, length in enumerate(rng.integers(0, 9000, 200)):
            file.create_group(f"g{i}").attrs["name"] = "x" * int(length)
    with open(tmp_path / "a.h5", "rb") as file:
        check_heaps(file, "a.h5")
        assert SIGNATURE in file.read()
