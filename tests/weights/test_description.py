"""`describe` against models of known sizes, in files of every format."""

import hashlib
import json
import pathlib

import pytest

from tests.weights.builds import PAIRS, SUFFIX, build, other_numerics
from vit_keras import weights
from vit_keras.models import HybridViT, Preprocessing, ResNet
from vit_keras.models.architectures import ResNetArchitecture, VisionTransformerArchitecture

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
    assert described["origin"] is None


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


@pytest.mark.parametrize(
    ("classifier", "positions"),
    [("token", "learned"), ("gap", "learned_2d"), ("gap_norm", "sincos2d"), ("map", "rope2d")],
)
def test_keras_file_says_everything(tmp_path, classifier, positions):
    model = build(classifier=classifier, position_embedding=positions, gelu="tanh")
    model.class_names = tuple("abcde")
    weights.save_model(model, tmp_path / "a.keras")
    described = weights.describe(tmp_path / "a.keras")
    said = described["architecture"]
    assert (said["classifier"], said["position_embedding"]) == (classifier, positions)
    assert (said["image_size"], said["gelu"], described["missing"]) == ([16, 24], "tanh", [])
    assert described["class_names"] == list("abcde")
    assert described["parameters"] == model.count_params()


def test_hybrids_and_resnets_are_described(tmp_path):
    hybrid = HybridViT((64, 64), (1, 2), 0.5, 1, hidden_size=24, num_layers=1, num_heads=3,
                       mlp_dim=40, num_classes=5)  # fmt: skip
    weights.save(hybrid, tmp_path / "hybrid.keras")
    arguments = weights.describe(tmp_path / "hybrid.keras")["architecture"]
    expected = as_json(VisionTransformerArchitecture.from_model(hybrid).arguments)
    assert {name: arguments[name] for name in expected} == expected
    resnet = ResNet((64, 64), (1, 1), 0.5, 7)
    weights.save(resnet, tmp_path / "bit.npz", format="bit")
    described = weights.describe(tmp_path / "bit.npz")
    expected = as_json(ResNetArchitecture.from_model(resnet).arguments)
    del expected["image_size"]  # the files of ResNets do not give it
    assert described["architecture"] == expected and described["missing"] == []
    assert described["parameters"] == resnet.count_params()


def test_published_files_are_found_by_path_and_by_name(tmp_path):
    row = weights.lookup("B/16", "sam-imagenet")
    file = tmp_path / row.path
    file.parent.mkdir(parents=True)
    with other_numerics():
        weights.save(build(num_classes=1000), file, format="google")
    origin = weights.describe(file)["origin"]
    assert origin["matched_by"] == "path"
    assert [row["weights"] for row in origin["candidates"]] == ["sam-imagenet"]
    assert origin["candidates"][0]["url"] == row.url
    bare = file.rename(tmp_path / file.name)
    origin = weights.describe(bare)["origin"]
    assert origin["matched_by"] == "name"
    assert {row["weights"] for row in origin["candidates"]} == {"sam-imagenet", "imagenet-384"}
