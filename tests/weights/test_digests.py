"""Files that this package writes carry a SHA-256 or checksums, and loading compares them."""

import zipfile

import numpy as np
import pytest

import vit_keras
from tests.helpers import weights_by_path
from tests.weights.builds import build
from tests.weights.written_files import (
    KEY,
    LIBRARIES,
    WRITTEN,
    digest,
    rewrite,
    save,
)
from vit_keras import weights

pytestmark = pytest.mark.on("torch")


@pytest.mark.parametrize("name", [n for n in WRITTEN if n.endswith((".safetensors", ".h5"))])
def test_other_libraries_see_the_tensors_and_their_hash(rng, tmp_path, name):
    _, file = save(build(rng), tmp_path, name)
    arrays, expected, note = LIBRARIES[file.suffix](file)
    assert arrays and digest(arrays, note) == expected


@pytest.mark.parametrize("opens", [vit_keras.open, lambda path: weights.load(build(), path)])
def test_a_changed_configuration_in_a_keras_archive_is_named(rng, tmp_path, opens):
    _, file = save(build(rng), tmp_path, "own.keras")
    with zipfile.ZipFile(file) as archive:
        start = archive.getinfo("config.json").header_offset
    data = bytearray(file.read_bytes())
    data[start + 60] ^= 4
    file.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="config.json' in .*own.keras' is damaged"):
        opens(file)


def test_missing_and_added_tensors_are_named(rng, tmp_path):
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    _, file = save(build(rng), tmp_path, "timm.safetensors")
    arrays = load_file(file)
    with safe_open(file, "np") as opened:
        metadata = opened.metadata()
    bias = arrays.pop("head.bias")
    save_file({**arrays, "other": bias}, file, metadata=metadata)
    with pytest.raises(ValueError, match="timm.safetensors' is damaged: its SHA-256 differs"):
        weights.describe(file)
    _, file = save(build(rng), tmp_path, "google.npz")
    rewrite(file, lambda content: content, names=lambda name: name != "head/bias.npy")
    with pytest.raises(ValueError, match="(?s)google.npz.*missing in the file: head/bias"):
        weights.load(build(rng), file)


def test_a_changed_note_is_not_the_one_that_was_written(rng, tmp_path):
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    _, file = save(build(rng), tmp_path, "timm.safetensors")
    with safe_open(file, "np") as opened:
        metadata = opened.metadata()
    metadata["vit_keras"] = metadata["vit_keras"].replace("1e-06", "1e-05")
    save_file(load_file(file), file, metadata=metadata)
    with pytest.raises(ValueError, match="timm.safetensors' is damaged: its SHA-256 differs"):
        vit_keras.open(file)


@pytest.mark.parametrize("text", ["", "{", "0" * 64])
def test_spoiled_hashes_are_refused(rng, tmp_path, text):
    from safetensors.numpy import load_file, save_file

    _, file = save(build(rng), tmp_path, "timm.safetensors")
    save_file(load_file(file), file, metadata={KEY: text})
    with pytest.raises(ValueError, match="timm.safetensors' is damaged: .*Restore it"):
        weights.describe(file)


def test_a_file_that_another_program_wrote_anew_is_a_foreign_file(rng, tmp_path):
    from safetensors.numpy import load_file, save_file

    _, file = save(build(rng), tmp_path, "timm.safetensors")
    assert weights.describe(file)["files"][0]["hashes"] == "verified"
    save_file(load_file(file), file)
    described = weights.describe(file)
    assert described["files"][0]["hashes"] is None and "num_heads" in described["missing"]
    weights.load(build(rng), file)


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("google.npz", "head/bias.npy"),
        ("torchvision.pth", "data.pkl"),
        ("own.keras", "config.json"),
    ],
)
def test_a_name_that_an_archive_holds_twice_is_refused(rng, tmp_path, name, member):
    path, file = save(build(rng), tmp_path, name)
    with zipfile.ZipFile(file, "a") as archive:
        (entry,) = [e for e in archive.infolist() if e.filename.endswith(member)]
        content = archive.read(entry)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr(entry.filename, content)
    for opens in (lambda: weights.load(build(), path), lambda: vit_keras.open(path)):
        with pytest.raises(ValueError, match=f"each name once. Received: .*{name}.*{member}' 2"):
            opens()


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
