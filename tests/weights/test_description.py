"""`describe` against models of known sizes, in files of every format."""

import hashlib
import json
import pathlib

import pytest

from tests.weights.builds import PAIRS, SMALL, SUFFIX, build, other_numerics
from vit_keras import weights
from vit_keras.models import HybridViT, Preprocessing, ResNet
from vit_keras.models.architectures import VisionTransformerArchitecture

pytestmark = pytest.mark.on("torch")

TOLD_BY_NO_SHAPE = {  # a safetensors file has this package's note, which says all
    "torchvision": {"num_heads"},
    "keras_hub": {"classifier"},
    "vit_keras": {"gelu"},
}


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
    silent = TOLD_BY_NO_SHAPE.get(source, set())
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


@pytest.mark.parametrize("source", ["timm", "huggingface", "keras_hub"])
def test_folder_says_all_that_its_files_say(tmp_path, source):
    model = build()
    model.class_names = ("a", "b", "c", "d", "e")
    model.preprocessing = Preprocessing((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))
    with other_numerics():
        weights.save(model, tmp_path / "folder", format=source)
    described = weights.describe(tmp_path / "folder")
    assert described["architecture"]["image_size"] == [16, 24] and described["missing"] == []
    assert described["preprocessing"]["mean"] == pytest.approx([0.5, 0.4, 0.3])
    if source != "keras_hub":  # a preset has no names of classes
        assert described["class_names"] == list("abcde")
    names = [pathlib.Path(file["path"]).name for file in described["files"]]
    preset = ["model.weights.h5", "task.weights.h5"]
    assert names == (preset if source == "keras_hub" else ["model.safetensors"])
    assert described["parameters"] == model.count_params()


RESNET = {"image_size": (64, 64), "resnet_layers": (1, 2), "resnet_width": 0.5, "num_classes": 5}
HYBRID = {**RESNET, "patch_size": (1, 1), **SMALL}


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (build, {"classifier": "token", "position_embedding": "learned", "gelu": "tanh"}),
        (build, {"classifier": "gap", "position_embedding": "learned_2d", "image_size": (32, 8)}),
        (build, {"classifier": "gap_norm", "position_embedding": "sincos2d"}),
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
