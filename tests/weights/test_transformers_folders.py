"""Folders of transformers: spellings, absent fields, images that are not square, licenses."""

import json

import pytest

import vit_keras
from tests.helpers import assert_close
from tests.weights.builds import assert_equal_weights
from tests.weights.transformers_models import (
    SIZES,
    TEXT,
    WITH_MLP,
    build_theirs,
    open_strictly,
    tower,
    vector,
)
from vit_keras import weights
from vit_keras.models import Preprocessing

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.on("torch"), pytest.mark.filterwarnings("ignore:.*DINOv3 License")]
SWIGLU = {**SIZES, "use_swiglu_ffn": True}
BEIT = {**WITH_MLP, "use_shared_relative_position_bias": True}
MODELS = {
    "vit": ("ViTForImageClassification", "ViTConfig", WITH_MLP),
    "deit": ("DeiTForImageClassificationWithTeacher", "DeiTConfig", WITH_MLP),
    "beit": ("BeitForImageClassification", "BeitConfig", BEIT),
    "dinov2": ("Dinov2ForImageClassification", "Dinov2Config", SWIGLU),
    "dinov3": ("DINOv3ViTModel", "DINOv3ViTConfig", WITH_MLP),
    "clip": ("CLIPForImageClassification", "CLIPConfig", tower()),
    "siglip": ("SiglipVisionModel", "SiglipVisionConfig", WITH_MLP),
}


def read_config(folder):
    return json.loads((folder / "config.json").read_text())


def write_config(folder, config):
    (folder / "config.json").write_text(json.dumps(config))


def assert_same_outputs(rng, ours, theirs, size=None):
    images = rng.normal(size=(2, *(size or ours.input_shape[1:3]), 3)).astype("float32")
    expected = vector(theirs, images)
    assert_close(ours(images), expected)


@pytest.mark.parametrize("name", MODELS)
def test_names_in_memory_and_those_on_disk_are_one_model(tmp_path, name):
    class_name, config_name, fields = MODELS[name]
    theirs = build_theirs(class_name, config_name, **fields)
    theirs.save_pretrained(tmp_path / "disk")
    (tmp_path / "memory").mkdir()
    write_config(tmp_path / "memory", read_config(tmp_path / "disk"))
    torch.save(theirs.state_dict(), tmp_path / "memory" / "pytorch_model.bin")
    torch.save(theirs.state_dict(), tmp_path / "bare.pth")
    disk = vit_keras.open(tmp_path / "disk")
    assert_equal_weights(disk, vit_keras.open(tmp_path / "memory"))
    bare = vit_keras.open(tmp_path / "bare.pth", num_heads=3, image_size=16)
    assert_equal_weights(disk, bare)  # the names alone say the family
    epsilons = [model.get_layer("encoderblock_0").layer_norm_epsilon for model in (disk, bare)]
    assert epsilons[0] == epsilons[1]


@pytest.mark.parametrize("prefix", ["vision_model.", "module."])
def test_the_prefix_of_a_lone_tower_may_be_there(tmp_path, prefix):
    theirs = build_theirs(*MODELS["siglip"][:2], **WITH_MLP)
    theirs.save_pretrained(tmp_path)
    expected = vit_keras.open(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    state = {f"{prefix}{name}": value for name, value in theirs.state_dict().items()}
    torch.save(state, tmp_path / "pytorch_model.bin")
    assert_equal_weights(expected, vit_keras.open(tmp_path))


@pytest.mark.parametrize(
    ("class_name", "config_name", "fields"),
    [
        ("CLIPVisionModel", "CLIPVisionConfig", {"patch_size": 32}),
        ("SiglipVisionModel", "SiglipVisionConfig", {"patch_size": 16}),
        ("Dinov2Model", "Dinov2Config", {"patch_size": 14, "mlp_ratio": 2}),
        ("ViTMSNModel", "ViTMSNConfig", {"patch_size": 16}),
        ("DINOv3ViTModel", "DINOv3ViTConfig", {"patch_size": 16}),
        ("BeitModel", "BeitConfig", {"patch_size": 16}),
    ],
)
def test_absent_fields_have_the_defaults_of_the_class(
    rng, tmp_path, class_name, config_name, fields
):
    """The image has 224 pixels, a block 12 or 6 heads, and the rest is the class's too."""
    width = {"hidden_size": 24, "num_hidden_layers": 1}
    if "Dinov2" not in class_name:
        width["intermediate_size"] = 40
    theirs = build_theirs(class_name, config_name, **fields, **width)
    theirs.save_pretrained(tmp_path)
    kept = ("architectures", "model_type")
    write_config(tmp_path, {key: read_config(tmp_path)[key] for key in kept})
    ours = vit_keras.open(tmp_path)
    assert ours.input_shape[1:3] == (224, 224)
    assert_same_outputs(rng, ours, theirs)


def test_a_sparse_configuration_of_two_towers_is_that_of_its_image_tower(rng, tmp_path):
    fields = {"hidden_size": 24, "num_hidden_layers": 1, "intermediate_size": 40}
    whole = {"vision_config": {**fields, "image_size": 32}, "text_config": TEXT}
    theirs = build_theirs("CLIPModel", "CLIPConfig", **whole)
    theirs.save_pretrained(tmp_path)
    write_config(tmp_path, {"model_type": "clip", "vision_config": {"image_size": 32}})
    assert_same_outputs(rng, vit_keras.open(tmp_path), theirs)
    assert weights.describe(tmp_path)["left_out"] == ["text tower"]


@pytest.mark.parametrize("name", ["vit", "deit", "dinov3", "beit"])
def test_images_need_not_be_square(rng, tmp_path, name):
    """transformers takes the rows of BEiT's table for columns, and resizes it."""
    class_name, config_name, fields = MODELS[name]
    theirs = build_theirs(class_name, config_name, **{**fields, "image_size": [16, 24]})
    theirs.save_pretrained(tmp_path)
    ours = vit_keras.open(tmp_path)
    assert ours.input_shape[1:3] == (16, 24)
    images = rng.normal(size=(2, 16, 24, 3)).astype("float32")
    with torch.no_grad():
        output = theirs(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    expected = output.pooler_output if name == "dinov3" else output.logits
    assert_close(ours(images), expected.numpy())
    if name == "beit":
        with pytest.raises(ValueError, match=r"Received: image_size=\(16, 24\)"):
            weights.save(ours, tmp_path / "ours", format="huggingface")
    else:
        weights.save(ours, tmp_path / "ours", format="huggingface")
        open_strictly(tmp_path / "ours", class_name)
        assert_equal_weights(ours, vit_keras.open(tmp_path / "ours"))


CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CROP = {"do_center_crop": True, "crop_size": {"height": 224, "width": 224}}


@pytest.mark.parametrize(
    ("settings", "name", "expected"),
    [
        (None, "clip", (CLIP_MEAN, "bicubic", 1.0)),
        (None, "siglip", ((0.5,) * 3, "bicubic", None)),
        (None, "dinov3", ((0.485, 0.456, 0.406), "bilinear", None)),
        (None, "deit", ((0.5,) * 3, "bicubic", 0.875)),
        ({"resample": 2, "image_mean": [0.1] * 3}, "clip", ((0.1,) * 3, "bilinear", 1.0)),
        ({"size": {"shortest_edge": 256}, **CROP}, "dinov2", (CLIP_MEAN, "bicubic", 0.875)),
        ({"size": 256, "crop_size": 224}, "clip", (CLIP_MEAN, "bicubic", 0.875)),
        ({"do_normalize": False}, "vit", ((0.0,), "bilinear", None)),
        ({"image_processor_type": "SiglipImageProcessor"}, "vit", ((0.5,) * 3, "bicubic", None)),
    ],
)
def test_preprocessing_is_the_files_or_the_default_of_its_processor(
    tmp_path, settings, name, expected
):
    class_name, config_name, fields = MODELS[name]
    build_theirs(class_name, config_name, **fields).save_pretrained(tmp_path)
    if settings is not None:
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    pixels = vit_keras.open(tmp_path).preprocessing
    assert (pixels.mean, pixels.interpolation, pixels.crop_fraction) == expected
    assert pixels.antialias


@pytest.mark.parametrize(
    ("name", "fraction", "processor", "size"),
    [
        ("clip", 1.0, "CLIPImageProcessor", {"shortest_edge": 16}),
        ("dinov2", 0.8, "BitImageProcessor", {"shortest_edge": 20}),
        ("deit", 0.8, "CLIPImageProcessor", {"shortest_edge": 20}),
        ("siglip", None, "SiglipImageProcessor", {"height": 16, "width": 16}),
        ("siglip", 0.5, "CLIPImageProcessor", {"shortest_edge": 32}),
        ("dinov3", None, "DINOv3ViTImageProcessor", {"height": 16, "width": 16}),
        ("beit", None, "BeitImageProcessor", {"height": 16, "width": 16}),
    ],
)
def test_each_family_gets_its_own_processor(tmp_path, name, fraction, processor, size):
    class_name, config_name, fields = MODELS[name]
    build_theirs(class_name, config_name, **fields).save_pretrained(tmp_path / "theirs")
    ours = vit_keras.open(tmp_path / "theirs")
    mean = (0.1, 0.2, 0.3)
    ours.preprocessing = Preprocessing(mean, mean, "bicubic", True, fraction)
    weights.save(ours, tmp_path / "ours", format="huggingface")
    settings = json.loads((tmp_path / "ours" / "preprocessor_config.json").read_text())
    assert (settings["image_processor_type"], settings["size"]) == (processor, size)
    assert (settings["image_mean"], settings["resample"]) == ([0.1, 0.2, 0.3], 3)
    assert vit_keras.open(tmp_path / "ours").preprocessing == ours.preprocessing
