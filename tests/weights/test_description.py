"""`describe` against models of known sizes, and the SHA-256 that our files carry."""

import contextlib
import hashlib
import json
import pathlib
import re

import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tests.helpers import ROOT
from tests.weights.builds import PAIRS, SMALL, SUFFIX, build, other_numerics
from tests.weights.test_strict import assert_refused
from vit_keras import weights
from vit_keras.models import HybridViT, ResNet
from vit_keras.models.architectures import VisionTransformerArchitecture
from vit_keras.weights.weight_file import open_tensors

pytestmark = pytest.mark.on("torch")
# What no shape tells; a safetensors file has this package's note, which says all.
UNTOLD = {"torchvision": {"num_heads"}, "keras_hub": {"classifier"}, "vit_keras": {"gelu"}}


def as_json(arguments):
    return json.loads(json.dumps(arguments))


@pytest.mark.parametrize(("source", "classifier"), PAIRS)
def test_every_format_is_described(tmp_path, source, classifier):
    model, path = build(classifier=classifier, image_size=(16, 16)), tmp_path / f"a{SUFFIX[source]}"
    with other_numerics():
        weights.save(model, path, format=source)
    described = weights.describe(path)
    expected = as_json(VisionTransformerArchitecture.from_model(model).arguments)
    expected["gelu"] = "tanh" if source in ("google", "big_vision") else expected["gelu"]
    silent = UNTOLD.get(source, set())
    if source == "vit_keras" and classifier.startswith("gap"):
        silent = silent | {"classifier"}
    assert described["format"] == source and set(described["missing"]) == silent
    said = described["architecture"]
    assert said == {name: expected[name] for name in said}
    assert set(expected) - set(said) <= {*silent, "layer_norm_epsilon"}
    assert described["parameters"] == model.count_params()
    file = {"path": str(path), "bytes": path.stat().st_size}
    file |= {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "hashes": None}
    if path.suffix in (".safetensors", ".h5"):
        file["hashes"] = "verified"
    assert described["files"] == [file]
    assert as_json(described) == described


RESNET = {"image_size": (64, 64), "resnet_layers": (1, 2), "resnet_width": 0.5, "num_classes": 5}
HYBRID = {**RESNET, "patch_size": (1, 1), **SMALL}


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (build, {"classifier": "gap", "position_embedding": "learned_2d", "image_size": (32, 8)}),
        (build, {"classifier": "map", "position_embedding": "rope2d", "gelu": "exact"}),
        (HybridViT, HYBRID),
        (ResNet, RESNET),
    ],
)
def test_keras_file_says_everything(tmp_path, make, arguments):
    model = make(**arguments)
    model.class_names = tuple("abcde")
    weights.save_model(model, tmp_path / "a.keras")
    described = weights.describe(tmp_path / "a.keras")
    said = described["architecture"]
    assert {name: said[name] for name in arguments} == as_json(arguments)
    assert described["class_names"] == list("abcde") and described["missing"] == []
    assert described["parameters"] == model.count_params()
    if make is ResNet:
        weights.save(model, tmp_path / "bit.npz", format="bit")
        bit = weights.describe(tmp_path / "bit.npz")["architecture"]
        assert bit == {name: said[name] for name in bit} and "image_size" not in bit


KEY = "vit_keras_sha256"
# What is saved under each name: the format, and the file of weights in a folder.
WRITTEN = {"google.npz": "google", "big_vision.npz": "big_vision", "torchvision.pth": "torchvision"}
WRITTEN |= dict.fromkeys(("timm.safetensors", "timm.pth"), "timm")
WRITTEN |= dict.fromkeys(("huggingface.bin", "huggingface/model.safetensors"), "huggingface")
HUB = ("hub.weights.h5", "hub/model.weights.h5", "hub/task.weights.h5")
WRITTEN |= dict.fromkeys(HUB, "keras_hub") | {"own.weights.h5": None, "own.keras": None}


def save(model, folder, name):
    """Saves a model; returns what is loaded, and the file of weights."""
    path, file = folder / pathlib.Path(name).parts[0], folder / name
    with other_numerics():
        weights.save(model, path, format=WRITTEN[name])
    return path, file


def tensors_of(file):
    """The tensors in a file, and its SHA-256 with the note that it covers."""
    with contextlib.closing(open_tensors(str(file))) as opened:
        part = next((part for part in opened.parts if part.path == str(file)), opened)
        return part.read_all(part.shapes), part.digest, part.note


@pytest.mark.parametrize("name", [n for n in WRITTEN if n.endswith((".safetensors", ".h5"))])
def test_the_hash_in_a_file_is_the_one_of_the_page(rng, tmp_path, name):
    page, defined = (ROOT / "docs" / "formats.md").read_text(), {}
    exec(re.search(r"```python\n(import hashlib.*?)```", page, re.DOTALL)[1], defined)
    _, file = save(build(rng), tmp_path, name)
    arrays, expected, note = tensors_of(file)
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
            ValueError, match="timm.safetensors' is damaged: its SHA-256 is not the recorded one"
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
