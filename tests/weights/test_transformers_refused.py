"""Folders that are nearly one of transformers', and models that none of its classes hold."""

import json

import pytest

import vit_keras
from tests.weights.builds import build
from tests.weights.test_transformers_folders import MODELS, SIZES, read_config, write_config
from tests.weights.transformers_models import WITH_MLP, build_theirs
from vit_keras import weights

pytest.importorskip("torch")
pytestmark = [pytest.mark.on("torch"), pytest.mark.filterwarnings("ignore:.*DINOv3 License")]
REGISTERS = {
    **MODELS,
    "registers": ("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", SIZES),
    "beit absolute": (
        "BeitModel",
        "BeitConfig",
        {**WITH_MLP, "use_absolute_position_embeddings": True},
    ),
    "gated": (
        "DINOv3ViTModel",
        "DINOv3ViTConfig",
        {**WITH_MLP, "use_gated_mlp": True, "hidden_act": "silu"},
    ),
}


def save(folder, name):
    class_name, config_name, fields = REGISTERS[name]
    build_theirs(class_name, config_name, **fields).save_pretrained(folder)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("vit", {"hidden_size": 32}, "hidden_size is 32 in config.json, 24 in the tensors"),
        ("vit", {"num_hidden_layers": 3}, "num_hidden_layers is 3 in config.json, 2 in the"),
        ("siglip", {"intermediate_size": 64}, "intermediate_size is 64 in config.json, 40 in"),
        ("dinov2", {"patch_size": 8}, r"patch_size is \(8, 8\) in config.json, \(4, 4\) in"),
        ("vit", {"id2label": {"0": "a"}}, "id2label names 1 classes, the tensors have 5"),
        ("vit", {"image_size": 32}, r"Images of \(32, 32\) pixels.*Received: 17 positions"),
        ("vit", {"qkv_bias": False}, "not in the model: vit.encoder.layer.0.*query.bias"),
        ("vit", {"model_type": "dinov2"}, "model_type='dinov2', whose files.*tensors of 'vit'"),
        ("vit", {"model_type": "swin"}, "`model_type` in config.json must be one of.*'swin'"),
        ("vit", {"hidden_act": "quick"}, "`hidden_act` must be one of 'gelu'.*Received: 'quick'"),
        ("gated", {"hidden_act": "gelu"}, "`hidden_act` of a gated MLP.*Received: 'gelu'"),
        ("gated", {"value_bias": False}, "or none. Received: query_bias=True, key_bias=False"),
        ("gated", {"use_gated_mlp": False, "hidden_act": "gelu"}, "in the model: layer.0.mlp.gate"),
        ("dinov2", {"use_swiglu_ffn": False}, "missing in the file|is .* in the file"),
        ("registers", {"num_register_tokens": 2}, r"register_tokens.*\(1, 4, 24\).*\(1, 2, 24\)"),
        ("registers", {"num_register_tokens": 0}, r"register_tokens.*\(1, 4, 24\).*\(1, 0, 24\)"),
        ("beit", {"layer_scale_init_value": 0.0}, "not in the model: beit.encoder.layer.0.lambda"),
        ("beit absolute", {"use_relative_position_bias": True}, "missing in the file: encoder"),
        ("beit absolute", {"use_absolute_position_embeddings": False}, "position_embeddings"),
    ],
)
def test_a_configuration_that_contradicts_the_tensors_is_refused(tmp_path, name, changes, message):
    save(tmp_path, name)
    write_config(tmp_path, {**read_config(tmp_path), **changes})
    with pytest.raises(ValueError, match="(?s)" + message):
        vit_keras.open(tmp_path)


SQUARE = {"image_size": 16}
DINO = {"num_classes": None, "mlp_dim": 48, **SQUARE}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"qk_norm": True}, "no place for a model with qk_norm=True"),
        ({"norm": "rms"}, "no place for a model with norm='rms'"),
        ({"position_embedding": "none"}, "position_embedding='none'"),
        ({"mlp": "swiglu", **DINO}, "layer_scale=True.*Received: layer_scale=False"),
        ({"layer_scale": 1e-5}, r"'dinov2' has Dinov2Model, .*classifier='token', num_cl"),
        ({"classifier": "map", **SQUARE}, "'siglip_vision_model'.*classifier='map', num_classes=5"),
        ({"classifier": "map", "num_classes": None}, r"Images of \(16, 16\) pixels"),
        (
            {"classifier": "token_gap", "layer_scale": 0.1, "mlp_dim": 50, **SQUARE},
            "whole multiple",
        ),
        ({"pre_norm": True, **SQUARE}, "'clip_vision_model' has CLIP.*'token', num_classes=5"),
        ({"pre_norm": True, "classifier": "gap", **SQUARE}, "after 1 other tokens"),
        (
            {"rope": {"base": 100.0}, "position_embedding": "none", "num_classes": None},
            "read as one with rope={.*'centered': True.*'centered': False",
        ),
        ({"position_embedding": "relative_2d", **SQUARE}, "read as one with qkv_bias='qv'"),
        ({"num_registers": 2, "layer_scale": 0.1, **DINO}, "7 positions"),
    ],
)
def test_models_that_no_class_holds_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match="(?s)" + message):
        weights.save(build(**changes), tmp_path / "folder", format="huggingface")
    assert not list(tmp_path.iterdir())


def test_a_pool_without_a_classifier_is_not_left_out(tmp_path):
    save(tmp_path, "siglip")
    model = build(image_size=16, patch_size=4, classifier="gap", num_classes=None)
    with pytest.raises(ValueError, match="(?s)not in the model: head.probe"):
        weights.load(model, tmp_path)


def test_labels_are_in_the_configuration_that_holds_both_towers(tmp_path):
    save(tmp_path / "theirs", "clip")
    model = vit_keras.open(tmp_path / "theirs")
    model.class_names = tuple("abcde")
    weights.save(model, tmp_path / "ours", format="huggingface")
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert config["model_type"] == "clip"
    assert config["id2label"] == dict(zip("01234", "abcde"))
    assert config["vision_config"]["model_type"] == "clip_vision_model"
    assert vit_keras.open(tmp_path / "ours").class_names == tuple("abcde")
