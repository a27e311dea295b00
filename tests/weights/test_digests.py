"""Files that this package writes carry a SHA-256 or checksums, and loading compares them."""

import contextlib
import pathlib
import re

import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tests.helpers import ROOT
from tests.weights.builds import build, other_numerics
from tests.weights.test_damage import assert_refused
from vit_keras import weights
from vit_keras.weights.weight_file import reader_for

pytestmark = pytest.mark.on("torch")

KEY = "vit_keras_sha256"
# What is saved under each name: the format, and the file of weights in a folder.
WRITTEN = {
    "google.npz": "google",
    "big_vision.npz": "big_vision",
    "timm.safetensors": "timm",
    "timm.pth": "timm",
    "torchvision.pth": "torchvision",
    "huggingface.bin": "huggingface",
    "huggingface/model.safetensors": "huggingface",
    "hub.weights.h5": "keras_hub",
    "hub/model.weights.h5": "keras_hub",
    "hub/task.weights.h5": "keras_hub",
    "own.weights.h5": None,
    "own.keras": None,
}


def save(model, folder, name):
    """Saves a model; returns what is loaded, and the file of weights."""
    path, file = folder / pathlib.Path(name).parts[0], folder / name
    with other_numerics():
        weights.save(model, path, format=WRITTEN[name])
    return path, file


def tensors_of(file):
    """The tensors in a file, and its SHA-256 with the note that it covers."""
    with contextlib.closing(reader_for(str(file))(str(file))) as opened:
        inside = [name for name in opened.shapes if opened.file_of(name) == str(file)]
        return opened.read_all(inside), opened.digests.get(str(file))


@pytest.mark.parametrize("name", [n for n in WRITTEN if n.endswith((".safetensors", ".h5"))])
def test_the_hash_in_a_file_is_the_one_of_the_page(rng, tmp_path, name):
    page, defined = (ROOT / "docs" / "formats.md").read_text(), {}
    exec(re.search(r"```python\n(import hashlib.*?)```", page, re.DOTALL)[1], defined)
    _, file = save(build(rng), tmp_path, name)
    arrays, (expected, note) = tensors_of(file)
    assert arrays and defined["file_hash"](arrays, note) == expected


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
        with pytest.raises(
            ValueError, match="timm.safetensors' is damaged: its SHA-256 is not the one"
        ):
            weights.describe(file)
    save_file(arrays, file)  # as another program writes it
    described = weights.describe(file)
    assert described["files"][0]["hashes"] is None and "num_heads" in described["missing"]
    weights.load(build(rng), file)


@pytest.mark.parametrize("name", [name for name in WRITTEN if not name.endswith(".keras")])
def test_a_damaged_tensor_is_refused_and_changes_nothing(rng, tmp_path, name):
    path, file = save(build(rng), tmp_path, name)
    largest = max(tensors_of(file)[0].values(), key=lambda array: array.size).tobytes(order="C")
    data = bytearray(file.read_bytes())
    assert data.count(largest) == 1
    data[data.index(largest) + len(largest) // 2] ^= 4
    file.write_bytes(bytes(data))
    assert_refused(build(rng), path, f"{file.name}.*damaged")
