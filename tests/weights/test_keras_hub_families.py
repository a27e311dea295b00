"""KerasHub's DeiT, DINOv2 and DINOv3 against KerasHub, in both directions."""

import warnings

import pytest

import vit_keras
from tests.helpers import assert_close, randomize, to_numpy
from tests.weights.builds import assert_equal_weights
from vit_keras import weights
from vit_keras.models import VisionTransformer, intermediates
from vit_keras.support.preprocessing import Resizing

keras_hub = pytest.importorskip("keras_hub")
models = keras_hub.models
pytestmark = [
    pytest.mark.on("torch"),
    pytest.mark.filterwarnings("ignore:.*(DINOv3 License|does not say|layer_norm_epsilon)"),
]

SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
SQUARE = {"patch_size": 8, "image_shape": (16, 16, 3)}
HOME = {"position_embedding_shape": (16, 16, 3)}
GATED = {"use_gated_mlp": True, "hidden_activation": "silu"}
BACKBONES = {
    "deit": ("DeiT", {"patch_size": 8, "image_shape": (16, 24, 3), "layer_norm_epsilon": 1e-3}),
    "deit without biases": ("DeiT", {**SQUARE, "patch_size": (4, 8), "use_mha_bias": False}),
    "dinov2": ("DINOV2", {**SQUARE, **HOME}),
    "dinov2 registers": ("DINOV2", {**SQUARE, **HOME, "num_register_tokens": 3}),
    "dinov2 swiglu": ("DINOV2", {**SQUARE, **HOME, "use_swiglu_ffn": True, "name": "mine"}),
    "dinov2 no mask": ("DINOV2", {**SQUARE, **HOME, "use_mask_token": False}),
    "dinov2 one register, no mask": (
        "DINOV2",
        {**SQUARE, **HOME, "use_mask_token": False, "num_register_tokens": 1},
    ),
    "dinov3": ("DINOV3", {**SQUARE, "use_key_bias": False}),
    "dinov3 gated": ("DINOV3", {**SQUARE, **GATED, "rope_theta": 50.0, "layer_norm_eps": 1e-3}),
    "dinov3 wide": ("DINOV3", {"patch_size": 8, "image_shape": (16, 32, 3)}),
    "dinov3 without registers": ("DINOV3", {**SQUARE, "num_register_tokens": 0}),
    "dinov3 without biases": (
        "DINOV3",
        {
            **SQUARE,
            **{f"use_{name}_bias": False for name in ("query", "key", "value", "proj", "mlp")},
            "use_mask_token": False,
        },
    ),
}


def written(rng, folder, name):
    """The class of a backbone, the backbone as KerasHub reads it from a preset, and images."""
    family, changes = BACKBONES[name]
    kind = getattr(models, f"{family}Backbone")
    randomize(kind(**SIZES, **changes), rng, scale=0.2).save_to_preset(folder)
    images = rng.uniform(-1, 1, (2, *changes["image_shape"])).astype("float32")
    return kind, kind.from_preset(str(folder)), images


def assert_same_tokens(ours, theirs, images):
    named = isinstance(theirs.input, dict)
    inputs = dict.fromkeys(theirs.input, images) if named else images
    tokens = to_numpy(theirs(inputs))
    assert_close(intermediates(ours)(images)["encoder_norm"], tokens, rtol=1e-5)
    assert_close(ours(images), tokens[:, 0], rtol=1e-5)


@pytest.mark.parametrize("name", BACKBONES)
def test_preset_gives_its_tokens_and_goes_back(rng, tmp_path, name):
    kind, theirs, images = written(rng, tmp_path / "theirs", name)
    ours = vit_keras.open(tmp_path / "theirs")
    assert_same_tokens(ours, theirs, images)
    weights.save(ours, tmp_path / "ours", format="keras_hub")
    assert_same_tokens(ours, kind.from_preset(str(tmp_path / "ours")), images)
    assert_equal_weights(ours, vit_keras.open(tmp_path / "ours"))
    weights.save(ours, tmp_path / "ours.weights.h5", format="keras_hub")
    again = kind.from_preset(str(tmp_path / "ours"), load_weights=False)
    randomize(again, rng).load_weights(tmp_path / "ours.weights.h5")
    assert_same_tokens(ours, again, images)


@pytest.mark.parametrize("name", BACKBONES)
def test_bare_weights_load_into_a_model_of_that_build(rng, tmp_path, name):
    _, theirs, images = written(rng, tmp_path / "theirs", name)
    theirs.save_weights(tmp_path / "bare.weights.h5")
    ours = vit_keras.open(tmp_path / "theirs")
    model = randomize(vit_keras.open(tmp_path / "theirs"), rng)
    assert_same_tokens(weights.load(model, tmp_path / "bare.weights.h5"), theirs, images)
    size = {"image_size": ours.input_shape[1:3]}
    if "dinov3" in name:
        with pytest.raises(ValueError, match="do not say .*num_heads"):
            vit_keras.open(tmp_path / "bare.weights.h5")
        size |= {"num_heads": 2, "layer_norm_epsilon": 1e-3 if "gated" in name else 1e-5}
        size |= {"rope": {"base": 50.0 if "gated" in name else 100.0, "centered": True}}
    if name == "deit":
        size["layer_norm_epsilon"] = 1e-3
    assert_same_tokens(vit_keras.open(tmp_path / "bare.weights.h5", **size), theirs, images)


@pytest.mark.parametrize("activation", [None, "softmax"])
def test_deit_classifier_gives_its_logits_and_goes_back(rng, tmp_path, activation):
    backbone = models.DeiTBackbone(**SIZES, **BACKBONES["deit"][1])
    converter = keras_hub.layers.DeiTImageConverter(image_size=(16, 24), scale=1 / 51, offset=-2.0)
    preprocessor = models.DeiTImageClassifierPreprocessor(converter)
    theirs = models.DeiTImageClassifier(
        backbone, 5, preprocessor=preprocessor, activation=activation
    )
    randomize(theirs, rng, scale=0.2).save_to_preset(tmp_path / "theirs")
    theirs.save_weights(tmp_path / "bare.weights.h5")
    ours = vit_keras.open(tmp_path / "theirs")
    images = rng.uniform(-1, 1, (2, 16, 24, 3)).astype("float32")
    assert_close(ours(images), theirs(images), rtol=1e-5)
    assert ours.preprocessing.std == pytest.approx((0.2,))
    weights.save(ours, tmp_path / "ours", format="keras_hub")
    back = models.DeiTImageClassifier.from_preset(str(tmp_path / "ours"))
    assert_close(ours(images), back(images), rtol=1e-5)
    pixels = rng.integers(0, 256, (1, 16, 24, 3)).astype("uint8")
    assert_close(to_numpy(back.preprocessor(pixels)), pixels / 51 - 2)
    loaded = weights.load(
        randomize(vit_keras.open(tmp_path / "ours"), rng), tmp_path / "bare.weights.h5"
    )
    assert_equal_weights(ours, loaded)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*no place for the classifier's activation")
        weights.save(ours, tmp_path / "ours.weights.h5", format="keras_hub")
    randomize(back, rng).load_weights(tmp_path / "ours.weights.h5")
    assert_close(ours(images), back(images), rtol=1e-5)


def test_deit_classifiers_that_read_other_tokens_are_refused(rng, tmp_path):
    backbone = models.DeiTBackbone(**SIZES, **SQUARE)
    models.DeiTImageClassifier(backbone, 5, pooling="gap").save_to_preset(tmp_path / "gap")
    with pytest.raises(ValueError, match="averages the class token"):
        vit_keras.open(tmp_path / "gap")
    models.DeiTImageClassifier(backbone, 5).save_to_preset(tmp_path / "token")
    sizes = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24, "num_classes": 5}
    for other in ({"classifier": "distilled"}, {"classifier": "gap", "class_token": True}):
        model = VisionTransformer(16, 8, **sizes, **other)
        with pytest.raises(ValueError, match="Received: classifier="):
            weights.load(model, tmp_path / "token")
    with pytest.raises(ValueError, match="no place for .*classifier='distilled'"):
        weights.save(
            VisionTransformer(16, 8, **sizes, classifier="distilled"),
            tmp_path / "x",
            format="keras_hub",
        )


@pytest.mark.parametrize("registers", [0, 3])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("home", [16, 40])
def test_dinov2_at_another_size_as_kerashub_interpolates(rng, tmp_path, registers, antialias, home):
    theirs = models.DINOV2Backbone(
        **SIZES,
        patch_size=8,
        image_shape=(24, 24, 3),
        position_embedding_shape=(home, home, 3),
        num_register_tokens=registers,
        antialias_in_interpolation=antialias,
    )
    randomize(theirs, rng, scale=0.2).save_to_preset(tmp_path)
    theirs = models.DINOV2Backbone.from_preset(str(tmp_path))
    images = rng.uniform(-1, 1, (2, 24, 24, 3)).astype("float32")
    ours = vit_keras.open(tmp_path)
    assert_same_tokens(ours, theirs, images)
    assert ours.resizing == Resizing("bicubic_antialias" if antialias else "bicubic")
    larger = models.DINOV2Backbone.from_preset(str(tmp_path), image_shape=(48, 48, 3))
    images = rng.uniform(-1, 1, (2, 48, 48, 3)).astype("float32")
    assert_same_tokens(vit_keras.open(tmp_path, image_size=48), larger, images)


def test_the_converter_beside_a_backbone_is_read_and_written(rng, tmp_path):
    written(rng, tmp_path, "dinov2")
    assert vit_keras.open(tmp_path).preprocessing.mean == (0.485, 0.456, 0.406)
    converter = keras_hub.layers.DINOV2ImageConverter(
        image_size=(16, 16), scale=1 / 51, offset=[-1.0, -2.0, -3.0], interpolation="bicubic"
    )
    converter.save_to_preset(tmp_path)
    ours = vit_keras.open(tmp_path)
    weights.save(ours, tmp_path / "ours", format="keras_hub")
    back = keras_hub.layers.DINOV2ImageConverter.from_preset(str(tmp_path / "ours"))
    pixels = rng.integers(0, 256, (1, 16, 16, 3)).astype("float32")
    for read in (converter, back):
        assert_close(ours.preprocessing.normalize(pixels), to_numpy(read(pixels)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_scale": 1.0, "num_classes": 3}, "DINOV2 must have num_classes=None"),
        ({"layer_scale": 1.0, "image_size": (16, 24)}, "image_size="),
        ({"layer_scale": 1.0, "num_registers": 2}, "position_cover='class'"),
        ({"layer_scale": 1.0, "mlp": "swiglu", "mlp_dim": 20}, "mlp_dim=24"),
        ({"layer_scale": 1.0, "qkv_bias": "qv"}, "no place for .*qkv_bias"),
        ({"num_registers": 2}, "no place for .*num_registers"),
        (
            {"rope": {"base": 100.0}, "position_embedding": "none"},
            "read as one with rope=.*centered",
        ),
        ({"rope": {"centered": True}}, "no place for .*rope"),
        ({"distillation_token": True, "layer_scale": 1.0}, "no place for .*distillation_token"),
    ],
)
def test_models_that_kerashub_has_not_are_refused(tmp_path, changes, message):
    sizes = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_layers": 1, "num_heads": 2}
    model = VisionTransformer(**{**sizes, "mlp_dim": 24, "num_classes": None, **changes})
    with pytest.raises(ValueError, match=message):
        weights.save(model, tmp_path / "preset", format="keras_hub")
    assert not (tmp_path / "preset").exists()


def test_another_activation_of_dinov3_is_refused(tmp_path):
    models.DINOV3Backbone(**SIZES, **SQUARE, use_gated_mlp=True).save_to_preset(tmp_path)
    with pytest.raises(ValueError, match="read with hidden_activation='silu'. Received: 'gelu'"):
        vit_keras.open(tmp_path)
