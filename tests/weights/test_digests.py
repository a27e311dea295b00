"""Files that this package writes carry a SHA-256 or checksums, and loading compares them."""

import zipfile

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import vit_keras
from tests.helpers import weights_by_path
from tests.weights.builds import build
from tests.weights.written_files import KEY, LIBRARIES, WRITTEN, digest, rewrite, save
from vit_keras import weights

pytestmark = pytest.mark.on("torch")


@pytest.mark.parametrize("name", [n for n in WRITTEN if n.endswith((".safetensors", ".h5"))])
def test_other_libraries_see_the_tensors_and_their_hash(rng, tmp_path, name):
    _, file = save(build(rng), tmp_path, name)
    arrays, expected, note = LIBRARIES[file.suffix](file)
    assert arrays and digest(arrays, note) == expected


def test_a_changed_configuration_in_a_keras_archive_is_named(rng, tmp_path):
    _, file = save(build(rng), tmp_path, "own.keras")
    with zipfile.ZipFile(file) as archive:
        start = archive.getinfo("config.json").header_offset
    data = bytearray(file.read_bytes())
    data[start + 60] ^= 4
    file.write_bytes(bytes(data))
    for opens in (vit_keras.open, lambda path: weights.load(build(), path)):
        with pytest.raises(ValueError, match="own.keras' .* or is damaged .*config.json"):
            opens(file)


def test_what_is_not_as_it_was_written_is_refused(rng, tmp_path):
    _, file = save(build(rng), tmp_path, "timm.safetensors")
    arrays = load_file(file)
    with safe_open(file, "np") as opened:
        metadata = opened.metadata()
    others = {("other" if name == "head.bias" else name): arrays[name] for name in arrays}
    note = metadata["vit_keras"].replace("1e-06", "1e-05")
    for changed, said in (
        (others, metadata),
        (arrays, {**metadata, "vit_keras": note}),
        *((arrays, {KEY: text}) for text in ("", "{", "0" * 64)),
    ):
        save_file(changed, file, metadata=said)
        with pytest.raises(ValueError, match="timm.safetensors' is damaged: its SHA-256 differs"):
            weights.describe(file)
    _, file = save(build(rng), tmp_path, "google.npz")
    rewrite(file, lambda content: content, names=lambda name: name != "head/bias.npy")
    with pytest.raises(ValueError, match="(?s)google.npz.*missing in the file: head/bias"):
        weights.load(build(rng), file)


def test_a_file_that_another_program_wrote_anew_is_a_foreign_file(rng, tmp_path):
    _, file = save(build(rng), tmp_path, "timm.safetensors")
    assert weights.describe(file)["files"][0]["hashes"] == "verified"
    save_file(load_file(file), file)
    described = weights.describe(file)
    assert described["files"][0]["hashes"] is None and "num_heads" in described["missing"]
    weights.load(build(rng), file)


@pytest.mark.parametrize("name", [name for name in WRITTEN if not name.endswith(".keras")])
def test_a_damaged_tensor_is_refused_and_changes_nothing(rng, tmp_path, name):
    path, file = save(build(rng), tmp_path, name)
    arrays, *_ = LIBRARIES[file.suffix](file)
    largest = max(arrays.values(), key=lambda array: array.size).tobytes(order="C")
    data = bytearray(file.read_bytes())
    assert data.count(largest) == 1
    data[data.index(largest) + len(largest) // 2] ^= 4
    file.write_bytes(bytes(data))
    model = build(rng)
    before = weights_by_path(model)
    with pytest.raises(ValueError, match=f"{file.name}.*damaged"):
        weights.load(model, path)
    assert all(np.array_equal(before[k], v) for k, v in weights_by_path(model).items())
