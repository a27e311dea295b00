"""transformers: every class with a Vision Transformer, both ways, and folders nearly right."""

import json

import pytest

import vit_keras
from tests.helpers import assert_close
from tests.weights.builds import assert_equal_weights, channels_first
from tests.weights.transformers_models import (
    NAFLEX,
    SIZES,
    TEXT,
    WITH_MLP,
    build_theirs,
    open_strictly,
    tower,
    vector,
)
from vit_keras import weights
from vit_keras.models import Preprocessing, VisionTransformer, with_image_size

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.on("torch")

BEIT = {**WITH_MLP, "use_relative_position_bias": True}
SHARED = {**WITH_MLP, "use_shared_relative_position_bias": True}
ABSOLUTE = {**WITH_MLP, "use_absolute_position_embeddings": True, "use_mean_pooling": False}
FEW = dict.fromkeys(("query_bias", "value_bias", "mlp_bias", "proj_bias"), False)
GATED = {"use_gated_mlp": True, "hidden_act": "silu", "key_bias": True}
SWIGLU = {**SIZES, "use_swiglu_ffn": True}
TWO = {**SWIGLU, "num_register_tokens": 2, "qkv_bias": False}
ALTCLIP = {"vision_config": WITH_MLP, "text_config": {**TEXT, "project_dim": 8, "pad_token_id": 0}}
# For a name: transformers' class and its fields, and as which class it is saved if as another.
CASES = {
    "vit": ("ViTForImageClassification", {**WITH_MLP, "layer_norm_eps": 1e-2}),
    "vit channels": ("ViTModel", {**WITH_MLP, "num_channels": 2}),
    "vit without biases": ("ViTModel", {**WITH_MLP, "qkv_bias": False}),
    "deit": ("DeiTForImageClassification", WITH_MLP),
    "deit with teacher": ("DeiTForImageClassificationWithTeacher", WITH_MLP),
    "beit": ("BeitForImageClassification", BEIT),
    "beit shared": ("BeitForImageClassification", SHARED),
    "beit both": ("BeitModel", {**BEIT, **SHARED}),
    "beit absolute": ("BeitForImageClassification", ABSOLUTE),
    "beit token": ("BeitModel", {**BEIT, "use_mean_pooling": False}),
    "beit without positions": ("BeitModel", WITH_MLP),
    "vit_mae": ("ViTMAEModel", {**WITH_MLP, "mask_ratio": 0.0}, "ViTMSNModel"),
    "vit_msn": ("ViTMSNModel", WITH_MLP),
    "vit_msn classes": ("ViTMSNForImageClassification", WITH_MLP, "ViTForImageClassification"),
    "ijepa classes": ("IJepaForImageClassification", WITH_MLP),
    "dinov2": ("Dinov2Model", SIZES),
    "dinov2 classes": ("Dinov2ForImageClassification", {**SIZES, "mlp_ratio": 2}),
    "dinov2 swiglu": ("Dinov2Model", SWIGLU),
    "registers": ("Dinov2WithRegistersModel", SIZES),
    "registers classes": ("Dinov2WithRegistersForImageClassification", TWO),
    "none": ("Dinov2WithRegistersModel", {**SIZES, "num_register_tokens": 0}, "Dinov2Model"),
    "dinov3": ("DINOv3ViTModel", {**WITH_MLP, "num_register_tokens": 4, "rope_theta": 30.0}),
    "dinov3 gated": ("DINOv3ViTModel", {**WITH_MLP, **GATED}),
    "dinov3 few biases": ("DINOv3ViTModel", {**WITH_MLP, **FEW}),
    "clip": ("CLIPVisionModel", WITH_MLP),
    "clip projection": ("CLIPVisionModelWithProjection", {**WITH_MLP, "projection_dim": 6}),
    "clip classes": ("CLIPForImageClassification", tower()),
    "siglip": ("SiglipVisionModel", WITH_MLP),
    "siglip headless": ("SiglipVisionModel", {**WITH_MLP, "vision_use_head": False}, "IJepaModel"),
    "siglip classes": ("SiglipForImageClassification", tower(), "IJepaForImageClassification"),
    "data2vec": ("Data2VecVisionForImageClassification", BEIT, "BeitForImageClassification"),
    "metaclip 2": ("MetaClip2VisionModel", WITH_MLP, "CLIPVisionModel"),
    "clip towers": ("CLIPModel", tower(), "CLIPVisionModelWithProjection"),
    "altclip": ("AltCLIPModel", ALTCLIP, "CLIPVisionModelWithProjection"),
    "siglip towers": ("SiglipModel", tower(), "SiglipVisionModel"),
    "naflex": ("Siglip2VisionModel", {**NAFLEX, "num_patches": 16}),
    "naflex classes": (
        "Siglip2ForImageClassification",
        tower(NAFLEX, num_patches=16),
        "IJepaForImageClassification",
    ),
}


def written(folder, name, **changes):
    """The model of a case, whose folder transformers writes."""
    class_name, fields = CASES[name][:2]
    theirs = build_theirs(class_name, **{**fields, **changes})
    theirs.save_pretrained(folder)
    return theirs


def read_config(folder):
    return json.loads((folder / "config.json").read_text())


def write_config(folder, config):
    (folder / "config.json").write_text(json.dumps(config))


def images_of(rng, size, channels=3):
    return rng.normal(size=(2, *size, channels)).astype("float32")


@pytest.mark.parametrize("name", CASES)
def test_every_class_gives_its_numbers_at_two_sizes_and_goes_back(rng, tmp_path, name):
    theirs = written(tmp_path / "theirs", name)
    ours = vit_keras.open(tmp_path / "theirs")
    images = images_of(rng, (20, 12), ours.input_shape[-1])
    assert_close(with_image_size(ours, (20, 12))(images), vector(theirs, images))
    images = images_of(rng, ours.input_shape[1:3], ours.input_shape[-1])
    expected = vector(theirs, images)
    assert_close(ours(images), expected)
    weights.save(ours, tmp_path / "ours", format="huggingface")
    class_name, _, *another = CASES[name]
    saved = another[0] if another else class_name
    assert read_config(tmp_path / "ours")["architectures"] == [saved]
    assert_close(vector(open_strictly(tmp_path / "ours", saved), images), expected)
    assert_equal_weights(ours, vit_keras.open(tmp_path / "ours"))


EACH = (
    *("vit", "deit with teacher", "beit shared", "registers classes", "dinov3", "clip classes"),
    "siglip",
)


@pytest.mark.parametrize("name", EACH)
def test_names_in_memory_and_those_on_disk_are_one_model(tmp_path, name):
    epsilon = {} if name != "vit" else {"layer_norm_eps": 1e-12}
    theirs = written(tmp_path / "disk", name, **epsilon)
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


@pytest.mark.parametrize(
    ("class_name", "fields"),
    [
        ("CLIPVisionModel", {"patch_size": 32, "intermediate_size": 40}),
        ("Dinov2Model", {"patch_size": 14, "mlp_ratio": 2}),
        ("DINOv3ViTModel", {"patch_size": 16, "intermediate_size": 40}),
        ("BeitModel", {"patch_size": 16, "intermediate_size": 40}),
        ("YolosModel", {"patch_size": 32, "intermediate_size": 40, "num_hidden_layers": 2}),
        ("OwlViTVisionModel", {"patch_size": 64, "intermediate_size": 40}),
        ("Idefics3VisionTransformer", {"patch_size": 32, "hidden_size": 48}),
    ],
)
def test_absent_fields_have_the_defaults_of_the_class(rng, tmp_path, class_name, fields):
    """The size of images, the number of heads and the rest."""
    theirs = build_theirs(class_name, **{"hidden_size": 24, "num_hidden_layers": 1, **fields})
    theirs.save_pretrained(tmp_path)
    kept = ("architectures", "model_type")
    write_config(tmp_path, {key: read_config(tmp_path)[key] for key in kept})
    ours, size = vit_keras.open(tmp_path), theirs.config.image_size
    images = images_of(rng, (size, size) if isinstance(size, int) else size)
    assert_close(ours(images), vector(theirs, images))


@pytest.mark.parametrize("name", ["vit", "deit with teacher", "dinov3", "beit shared"])
def test_images_need_not_be_square(rng, tmp_path, name):
    """transformers takes the rows of BEiT's table for columns, and resizes it."""
    theirs = written(tmp_path, name, image_size=[16, 24])
    ours, images = vit_keras.open(tmp_path), images_of(rng, (16, 24))
    with torch.no_grad():
        output = theirs(channels_first(images))
    expected = output.pooler_output if name == "dinov3" else output.logits
    assert_close(ours(images), expected.numpy())
    if name == "beit shared":
        with pytest.raises(ValueError, match=r"Received: image_size=\(16, 24\)"):
            weights.save(ours, tmp_path / "ours", format="huggingface")
        return
    weights.save(ours, tmp_path / "ours", format="huggingface")
    open_strictly(tmp_path / "ours", CASES[name][0])
    assert_equal_weights(ours, vit_keras.open(tmp_path / "ours"))


CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CROP = {"do_center_crop": True, "crop_size": {"height": 224, "width": 224}}


@pytest.mark.parametrize(
    ("settings", "name", "expected"),
    [
        (None, "clip", (CLIP_MEAN, "bicubic", 1.0)),
        (None, "dinov3", ((0.485, 0.456, 0.406), "bilinear", None)),
        (None, "deit", ((0.5,) * 3, "bicubic", 0.875)),
        ({"resample": 2, "image_mean": [0.1] * 3}, "clip", ((0.1,) * 3, "bilinear", 1.0)),
        ({"size": {"shortest_edge": 256}, **CROP}, "dinov2", (CLIP_MEAN, "bicubic", 0.875)),
        ({"size": 256, "crop_size": 224}, "clip", (CLIP_MEAN, "bicubic", 0.875)),
        ({"crop_size": None}, "vit", ((0.5,) * 3, "bilinear", None)),
        ({"do_normalize": False}, "vit", ((0.0,), "bilinear", None)),
        ({"do_rescale": False, "image_mean": [51.0] * 3}, "vit", ((0.2,) * 3, "bilinear", None)),
        ({"rescale_factor": 2 / 255}, "vit", ((0.25,) * 3, "bilinear", None)),
        ({"rescale_factor": 1, "do_normalize": False}, "vit", ((0.0,), "bilinear", None)),
        ({"image_processor_type": "SiglipImageProcessor"}, "vit", ((0.5,) * 3, "bicubic", None)),
    ],
)
def test_preprocessing_is_the_files_or_the_default_of_its_processor(
    tmp_path, settings, name, expected
):
    written(tmp_path, name)
    if settings is not None:
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    pixels = vit_keras.open(tmp_path).preprocessing
    assert (pixels.mean, pixels.interpolation, pixels.crop_fraction) == expected
    assert pixels.antialias


def test_a_filter_that_models_lack_is_named(tmp_path):
    written(tmp_path, "vit")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"resample": 1}))
    with pytest.warns(UserWarning, match="read as a model that resizes with 'bilinear'.*esample=1"):
        vit_keras.open(tmp_path)


@pytest.mark.parametrize(
    ("name", "fraction", "processor", "size"),
    [
        ("clip", 1.0, "CLIPImageProcessor", {"shortest_edge": 16}),
        ("dinov2", 0.8, "BitImageProcessor", {"shortest_edge": 20}),
        ("siglip", None, "SiglipImageProcessor", {"height": 16, "width": 16}),
        ("siglip", 0.5, "CLIPImageProcessor", {"shortest_edge": 32}),
        ("dinov3", None, "DINOv3ViTImageProcessor", {"height": 16, "width": 16}),
        ("beit", None, "BeitImageProcessor", {"height": 16, "width": 16}),
    ],
)
def test_each_family_gets_its_own_processor(tmp_path, name, fraction, processor, size):
    written(tmp_path / "theirs", name)
    ours = vit_keras.open(tmp_path / "theirs")
    ours.preprocessing = Preprocessing((0.1, 0.2, 0.3), (0.3,) * 3, "bicubic", True, fraction)
    weights.save(ours, tmp_path / "ours", format="huggingface")
    settings = json.loads((tmp_path / "ours" / "preprocessor_config.json").read_text())
    assert (settings["image_processor_type"], settings["size"]) == (processor, size)
    assert (settings["image_mean"], settings["resample"]) == ([0.1, 0.2, 0.3], 3)
    assert vit_keras.open(tmp_path / "ours").preprocessing == ours.preprocessing


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("vit", {"hidden_size": 32}, "hidden_size is 32 in config.json, 24 in the tensors"),
        ("vit", {"id2label": {"0": "a"}}, "number of labels is 1 in config.json, 5 in the"),
        ("vit", {"image_size": 32}, r"Images of \(32, 32\) pixels.*Received: 17 positions"),
        ("vit", {"model_type": "dinov2"}, "model_type='dinov2', whose files.*tensors of 'vit'"),
        ("vit", {"model_type": "swin"}, "`model_type` must be one of.*model_type='swin'"),
        ("vit", {"hidden_act": "quick"}, "`hidden_act` must be one of 'gelu'.*hidden_act='quick'"),
        ("dinov3 gated", {"hidden_act": "gelu"}, "'silu', 'swish'. Received: hidden_act='gelu'"),
        ("dinov3 gated", {"value_bias": False}, "value_bias is False in config.json, True in"),
        ("registers", {"num_register_tokens": 2}, "num_register_tokens is 2 in config.json, 4 in"),
    ],
)
def test_a_configuration_that_contradicts_the_tensors_is_refused(tmp_path, name, changes, message):
    written(tmp_path, name)
    write_config(tmp_path, {**read_config(tmp_path), **changes})
    with pytest.raises(ValueError, match="(?s)" + message):
        vit_keras.open(tmp_path)


def test_registers_that_the_model_lacks_are_not_left_out(tmp_path):
    written(tmp_path, "dinov3")
    options = {"layer_scale": 1.0, "rope": {"centered": True}, "position_embedding": "none"}
    model = VisionTransformer(16, 4, 24, 2, 3, 40, num_classes=None, qkv_bias="qv", **options)
    with pytest.raises(ValueError, match=r"register_tokens.*\(1, 4, 24\).*\(1, 0, 24\)"):
        weights.load(model, tmp_path)


def test_labels_are_in_the_configuration_that_holds_both_towers(tmp_path):
    written(tmp_path / "theirs", "clip classes")
    model = vit_keras.open(tmp_path / "theirs")
    model.class_names = tuple("abcde")
    weights.save(model, tmp_path / "ours", format="huggingface")
    config = read_config(tmp_path / "ours")
    assert config["model_type"] == "clip"
    assert config["id2label"] == dict(zip("01234", "abcde"))
    assert config["vision_config"]["model_type"] == "clip_vision_model"
    assert vit_keras.open(tmp_path / "ours").class_names == tuple("abcde")
