"""Flipped bits in files of every kind are refused by name, or change nothing."""

import numpy as np
import pytest

from tests.helpers import weights_by_path
from tests.weights.builds import build
from tests.weights.written_files import LIBRARIES, WRITTEN, save
from vit_keras import models, weights

pytestmark = pytest.mark.on("torch")


def computation(model):
    return model.get_layer("encoder_norm").epsilon, models.preprocessing_of(model)


def load_or_refuse(path, file, model, expected):
    """Whether the file is refused; otherwise its weights and numerics must be the right ones."""
    before = computation(model)
    try:
        weights.load(model, path)
    except (ValueError, OSError) as error:
        assert file.name in str(error), error
        refused = True
    else:
        refused = False
    assert all(np.array_equal(expected[k], v) for k, v in weights_by_path(model).items())
    assert computation(model) == before
    return refused


@pytest.mark.parametrize("name", WRITTEN)
def test_flipped_bits_are_refused_or_change_nothing(rng, tmp_path, name):
    path, file = save(build(rng), tmp_path, name)
    model, data = build(), file.read_bytes()
    weights.load(model, path)
    expected = weights_by_path(model)
    refused = 0
    for place in rng.integers(0, len(data), 4):
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(bytes(flipped))
        refused += load_or_refuse(path, file, model, expected)
    assert refused > 0  # the others hit padding and fields that nobody reads


def place_of(data, array):
    """Where the elements of an array lie in a file."""
    content = array.tobytes(order="C")
    place = data.index(content)
    assert data.count(content) == 1
    return place + len(content) // 2


@pytest.mark.parametrize("name", [name for name in WRITTEN if not name.endswith(".keras")])
def test_a_damaged_tensor_is_refused_and_changes_nothing(rng, tmp_path, name):
    path, file = save(build(rng), tmp_path, name)
    arrays, *_ = LIBRARIES[file.suffix](file)
    spoiled = max(arrays, key=lambda name: arrays[name].size)
    changed = bytearray(file.read_bytes())
    changed[place_of(changed, arrays[spoiled])] ^= 4
    file.write_bytes(bytes(changed))
    model = build(rng)
    before = weights_by_path(model)
    with pytest.raises(ValueError, match=f"{file.name}.*damaged"):
        weights.load(model, path)
    assert all(np.array_equal(before[k], v) for k, v in weights_by_path(model).items())
