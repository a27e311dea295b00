"""Every class of transformers that holds a Vision Transformer, in both directions."""

import json

import pytest

import vit_keras
from tests.helpers import assert_close
from tests.weights.builds import assert_equal_weights
from tests.weights.transformers_models import (
    NAFLEX,
    SIZES,
    WITH_MLP,
    build_theirs,
    open_strictly,
    tower,
    vector,
)
from vit_keras import weights
from vit_keras.models import with_image_size

pytest.importorskip("torch")
pytestmark = [pytest.mark.on("torch"), pytest.mark.filterwarnings("ignore:.*DINOv3 License")]

BEIT = {**WITH_MLP, "use_relative_position_bias": True}
SHARED = {**WITH_MLP, "use_shared_relative_position_bias": True}
ABSOLUTE = {**WITH_MLP, "use_absolute_position_embeddings": True, "use_mean_pooling": False}
# For a name: transformers' class, its configuration, the fields, and the class that it is saved as
# where that is another one.
CASES = {
    "vit": ("ViTForImageClassification", "ViTConfig", WITH_MLP),
    "vit without biases": ("ViTModel", "ViTConfig", {**WITH_MLP, "qkv_bias": False}),
    "vit tanh": ("ViTModel", "ViTConfig", {**WITH_MLP, "hidden_act": "gelu_new"}),
    "deit": ("DeiTForImageClassification", "DeiTConfig", WITH_MLP),
    "deit with teacher": ("DeiTForImageClassificationWithTeacher", "DeiTConfig", WITH_MLP),
    "deit model": ("DeiTModel", "DeiTConfig", WITH_MLP),
    "beit": ("BeitForImageClassification", "BeitConfig", BEIT),
    "beit shared": ("BeitForImageClassification", "BeitConfig", SHARED),
    "beit both": ("BeitModel", "BeitConfig", {**BEIT, **SHARED}),
    "beit absolute": ("BeitForImageClassification", "BeitConfig", ABSOLUTE),
    "beit absolute shared": ("BeitForImageClassification", "BeitConfig", {**ABSOLUTE, **SHARED}),
    "beit absolute relative": ("BeitModel", "BeitConfig", {**ABSOLUTE, **BEIT}),
    "beit token": ("BeitModel", "BeitConfig", {**BEIT, "use_mean_pooling": False}),
    "beit unscaled": ("BeitModel", "BeitConfig", {**BEIT, "layer_scale_init_value": 0.0}),
    "beit without positions": ("BeitModel", "BeitConfig", WITH_MLP),
    "vit_mae": ("ViTMAEModel", "ViTMAEConfig", {**WITH_MLP, "mask_ratio": 0.0}, "ViTMSNModel"),
    "vit_msn": ("ViTMSNModel", "ViTMSNConfig", WITH_MLP),
    "vit_msn classes": (
        "ViTMSNForImageClassification",
        "ViTMSNConfig",
        WITH_MLP,
        "ViTForImageClassification",
    ),
    "ijepa": ("IJepaModel", "IJepaConfig", WITH_MLP),
    "ijepa classes": ("IJepaForImageClassification", "IJepaConfig", WITH_MLP),
    "dinov2": ("Dinov2Model", "Dinov2Config", SIZES),
    "dinov2 classes": ("Dinov2ForImageClassification", "Dinov2Config", {**SIZES, "mlp_ratio": 2}),
    "dinov2 swiglu": ("Dinov2Model", "Dinov2Config", {**SIZES, "use_swiglu_ffn": True}),
    "dinov2 registers": ("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", SIZES),
    "dinov2 registers classes": (
        "Dinov2WithRegistersForImageClassification",
        "Dinov2WithRegistersConfig",
        {**SIZES, "num_register_tokens": 2, "qkv_bias": False, "use_swiglu_ffn": True},
    ),
    "dinov2 no registers": (
        "Dinov2WithRegistersModel",
        "Dinov2WithRegistersConfig",
        {**SIZES, "num_register_tokens": 0},
        "Dinov2Model",
    ),
    "dinov3": ("DINOv3ViTModel", "DINOv3ViTConfig", {**WITH_MLP, "num_register_tokens": 4}),
    "dinov3 theta": ("DINOv3ViTModel", "DINOv3ViTConfig", {**WITH_MLP, "rope_theta": 30.0}),
    "dinov3 gated": (
        "DINOv3ViTModel",
        "DINOv3ViTConfig",
        {**WITH_MLP, "use_gated_mlp": True, "hidden_act": "silu", "key_bias": True},
    ),
    "dinov3 few biases": (
        "DINOv3ViTModel",
        "DINOv3ViTConfig",
        {**WITH_MLP, **dict.fromkeys(("query_bias", "value_bias", "mlp_bias", "proj_bias"), False)},
    ),
    "clip": ("CLIPVisionModel", "CLIPVisionConfig", WITH_MLP),
    "clip exact": ("CLIPVisionModel", "CLIPVisionConfig", {**WITH_MLP, "hidden_act": "gelu"}),
    "clip projection": (
        "CLIPVisionModelWithProjection",
        "CLIPVisionConfig",
        {**WITH_MLP, "projection_dim": 6},
    ),
    "clip classes": ("CLIPForImageClassification", "CLIPConfig", tower()),
    "siglip": ("SiglipVisionModel", "SiglipVisionConfig", WITH_MLP),
    "siglip headless": (
        "SiglipVisionModel",
        "SiglipVisionConfig",
        {**WITH_MLP, "vision_use_head": False},
        "IJepaModel",
    ),
    "siglip cropped": ("SiglipVisionModel", "SiglipVisionConfig", {**WITH_MLP, "image_size": 18}),
    "siglip classes": (
        "SiglipForImageClassification",
        "SiglipConfig",
        tower(),
        "IJepaForImageClassification",
    ),
    "data2vec": (
        "Data2VecVisionForImageClassification",
        "Data2VecVisionConfig",
        BEIT,
        "BeitForImageClassification",
    ),
    "metaclip 2": ("MetaClip2VisionModel", "MetaClip2VisionConfig", WITH_MLP, "CLIPVisionModel"),
    "clip towers": ("CLIPModel", "CLIPConfig", tower(), "CLIPVisionModelWithProjection"),
    "siglip towers": ("SiglipModel", "SiglipConfig", tower(), "SiglipVisionModel"),
    "naflex classes": (
        "Siglip2ForImageClassification",
        "Siglip2Config",
        tower(NAFLEX, num_patches=16),
        "IJepaForImageClassification",
    ),
    "naflex": ("Siglip2VisionModel", "Siglip2VisionConfig", {**NAFLEX, "num_patches": 16}),
}


@pytest.fixture(params=CASES, scope="module")
def case(request, tmp_path_factory):
    """A model of transformers, ours of its folder, and the class that ours is saved as."""
    class_name, config_name, fields, *saved = CASES[request.param]
    folder = tmp_path_factory.mktemp("theirs")
    theirs = build_theirs(class_name, config_name, **fields)
    theirs.save_pretrained(folder)
    return theirs, vit_keras.open(folder), saved[0] if saved else class_name


def images_of(rng, size):
    return rng.normal(size=(2, *size, 3)).astype("float32")


def test_their_folder_gives_their_numbers_at_every_size(rng, case):
    theirs, ours, _ = case
    for size in (ours.input_shape[1:3], (20, 12)):
        images = images_of(rng, size)
        sized = ours if size == ours.input_shape[1:3] else with_image_size(ours, size)
        expected = vector(theirs, images)
        assert_close(sized(images), expected)


def test_our_folder_opens_in_their_class(rng, case, tmp_path):
    theirs, ours, class_name = case
    weights.save(ours, tmp_path / "ours", format="huggingface")
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert config["architectures"] == [class_name]
    again = open_strictly(tmp_path / "ours", class_name)
    images = images_of(rng, ours.input_shape[1:3])
    expected = vector(theirs, images)
    assert_close(vector(again, images), expected)
    assert_equal_weights(ours, vit_keras.open(tmp_path / "ours"))
