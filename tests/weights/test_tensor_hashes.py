"""Files that this package writes carry hashes of their tensors, and loading compares them."""

import hashlib
import json
import zipfile

import numpy as np
import pytest

from tests.helpers import weights_by_path
from tests.weights.builds import build
from tests.weights.written_files import (
    KEY,
    LIBRARIES,
    WRITTEN,
    digest,
    read_safetensors,
    rewrite,
    save,
)
from vit_keras import models, weights

pytestmark = pytest.mark.once


@pytest.mark.parametrize("name", [name for name in WRITTEN if not name.endswith(".keras")])
def test_other_libraries_see_the_tensors_and_their_hashes(rng, tmp_path, name):
    _, file = save(build(rng), tmp_path, name)
    arrays, hashes = LIBRARIES[file.suffix](file)
    assert arrays and {key: digest(array) for key, array in arrays.items()} == hashes


def test_a_keras_archive_has_hashes_of_its_members(rng, tmp_path):
    model = build(rng)
    _, file = save(model, tmp_path, "own.keras")
    with zipfile.ZipFile(file) as archive:
        expected = {n: hashlib.sha256(archive.read(n)).hexdigest() for n in archive.namelist()}
        assert json.loads(archive.comment) == {KEY: expected}
        assert sorted(expected) == ["config.json", "metadata.json", "model.weights.h5"]
    import keras

    ours, theirs = weights_by_path(model), weights_by_path(keras.saving.load_model(file))
    assert all(np.array_equal(ours[path], theirs[path]) for path in ours)


@pytest.mark.parametrize("opens", [weights.open_model, lambda path: weights.load(build(), path)])
def test_a_changed_configuration_in_a_keras_archive_is_named(rng, tmp_path, opens):
    _, file = save(build(rng), tmp_path, "own.keras")
    rewrite(file, lambda content: content.replace(b"1e-06", b"1e-05"))
    with pytest.raises(ValueError, match="own.keras.*these members have another .*: config.json"):
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
    message = r"other tensors than when it was written \(missing: head.bias; added: other\)"
    with pytest.raises(ValueError, match=message):
        weights.describe(file)
    _, file = save(build(rng), tmp_path, "google.npz")
    rewrite(file, lambda content: content, names=lambda name: name != "head/bias.npy")
    with pytest.raises(ValueError, match="google.npz' is damaged: its tensors were renamed, added"):
        weights.describe(file)


def test_a_changed_note_is_not_the_one_that_was_written(rng, tmp_path):
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    _, file = save(build(rng), tmp_path, "timm.safetensors")
    with safe_open(file, "np") as opened:
        metadata = opened.metadata()
    metadata["vit_keras"] = metadata["vit_keras"].replace("1e-06", "1e-05")
    save_file(load_file(file), file, metadata=metadata)
    with pytest.raises(ValueError, match="note about its model has another SHA-256"):
        weights.from_checkpoint(file)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"tensors": 3, "note": null}', "[" * 10**5])
def test_spoiled_hashes_are_refused(rng, tmp_path, text):
    from safetensors.numpy import load_file, save_file

    _, file = save(build(rng), tmp_path, "timm.safetensors")
    save_file(load_file(file), file, metadata={KEY: text})
    with pytest.raises(ValueError, match="hashes in .*timm.safetensors' are damaged. Restore it"):
        weights.describe(file)


def test_a_file_that_another_program_wrote_anew_is_a_foreign_file(rng, tmp_path):
    from safetensors.numpy import load_file, save_file

    _, file = save(build(rng), tmp_path, "timm.safetensors")
    assert weights.describe(file)["files"][0]["hashes"] == "verified"
    save_file(load_file(file), file)
    described = weights.describe(file)
    assert described["files"][0]["hashes"] is None and "num_heads" in described["missing"]
    weights.load(build(rng), file)


def test_damaged_adapters_change_nothing(rng, tmp_path):
    model = build(rng)
    file = tmp_path / "adapters.safetensors"
    models.add_lora(model, rank=2)
    weights.save_adapters(model, file)
    arrays, hashes = read_safetensors(file)
    assert {name: digest(array) for name, array in arrays.items()} == hashes
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(bytes(data))
    before = weights_by_path(model)
    with pytest.raises(ValueError, match="adapters.safetensors' is damaged: these tensors"):
        weights.load_adapters(model, file)
    assert all(np.array_equal(before[k], v) for k, v in weights_by_path(model).items())


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
    for opens in (lambda: weights.load(build(), path), lambda: weights.from_checkpoint(path)):
        with pytest.raises(ValueError, match=f"each name once. Received: .*{name}.*{member}' 2"):
            opens()
