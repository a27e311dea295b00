"""Files load completely or not at all, and saving replaces a file only when it is complete."""

import numpy as np
import pytest

import vit_keras
from tests.helpers import randomize, weights_by_path
from vit_keras.models import VisionTransformer
from vit_keras.weights import load, save_model


def model(**changes):
    sizes = {"hidden_size": 12, "num_layers": 2, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}
    return VisionTransformer(8, 4, **{**sizes, **changes})


def test_misfits_are_listed_and_the_model_stays_as_it_was(rng, tmp_path):
    path = str(tmp_path / "a.keras")
    save_model(randomize(model(num_layers=3, num_classes=4), rng), path)
    target = randomize(model(representation_size=6), rng)
    before = weights_by_path(target)
    with pytest.raises(ValueError) as error:
        load(target, path)
    message = str(error.value)
    for part in ("pre_logits/kernel", "encoderblock_2/MlpBlock_3/Dense_0/0", "head/kernel"):
        assert part in message
    for name, value in weights_by_path(target).items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize("damage", ["truncated", "flipped", "text"])
def test_corrupt_file_is_named(rng, tmp_path, damage):
    path = tmp_path / "a.keras"
    save_model(randomize(model(), rng), path)
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        middle = len(data) // 2
        data[middle : middle + 64] = bytes(b ^ 255 for b in data[middle : middle + 64])
    path.write_bytes({"truncated": data[: len(data) // 2], "text": b"hello"}.get(damage, data))
    with pytest.raises(ValueError, match=r"a\.keras' cannot be read as a Keras model"):
        vit_keras.open(path)


def test_missing_and_unknown_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model file at 'nowhere\.keras'"):
        vit_keras.open("nowhere.keras")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.keras"):
        load(model(), "nowhere.keras")
    other = tmp_path / "a.bin"
    other.write_bytes(b"")
    with pytest.raises(ValueError, match=r"a\.bin"):
        load(model(), other)


def test_saving_replaces_a_file_at_once(rng, tmp_path, monkeypatch):
    path = tmp_path / "a.keras"
    first = randomize(model(), rng)
    save_model(first, path)
    second = model(num_layers=1)

    def torn(target):
        with open(target, "wb") as file:
            file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(second, "save", torn)
    with pytest.raises(OSError, match="No space"):
        save_model(second, path)
    again = weights_by_path(vit_keras.open(path))
    for name, value in weights_by_path(first).items():
        np.testing.assert_array_equal(again[name], value)
    assert [p.name for p in tmp_path.iterdir()] == ["a.keras"]
