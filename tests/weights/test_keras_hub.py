"""KerasHub's ViT, DeiT, DINOv2 and DINOv3 against KerasHub, in both directions."""

import itertools
import json
import warnings

import keras
import pytest

import vit_keras
from tests.helpers import assert_close, randomize, to_numpy
from tests.weights.builds import assert_equal_weights, build
from vit_keras import weights
from vit_keras.models import intermediates
from vit_keras.support.preprocessing import Resizing
from vit_keras.weights.containers import DamagedFile

pytestmark = [
    pytest.mark.on("torch"),
    pytest.mark.filterwarnings("ignore:.*(does not state|layer_norm_epsilon)"),
    pytest.mark.filterwarnings("ignore:.*no place for the classifier's activation"),
]
keras_hub = pytest.importorskip("keras_hub")
models = keras_hub.models
DINO = {"num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24}
SIZES = {"patch_size": 8, "num_layers": 2, "num_heads": 3, "hidden_dim": 24, "mlp_dim": 40}


def backbone(rng, image_shape=(16, 24, 3), kind="ViT", **changes):
    sizes = SIZES if kind == "ViT" else {"patch_size": 8, **DINO}
    make = getattr(models, f"{kind}Backbone")
    return randomize(make(image_shape=image_shape, **{**sizes, **changes}), rng, scale=0.2)


def classifier(rng, backbone, kind="ViT", converter=None, **options):
    """A classifier of KerasHub with random weights."""
    if converter:
        kind_of = getattr(keras_hub.layers, f"{kind}ImageConverter")
        converter = kind_of(image_size=backbone.image_shape[:2], **converter)
        options["preprocessor"] = getattr(models, f"{kind}ImageClassifierPreprocessor")(converter)
    model = getattr(models, f"{kind}ImageClassifier")(backbone, 5, **options)
    return randomize(model, rng, scale=0.2)


def images_for(rng, size=(16, 24)):
    return rng.uniform(-1, 1, (2, *size, 3)).astype("float32")


def assert_agrees(ours, theirs, images):
    assert_close(ours(images), theirs(images), rtol=1e-5)


def edit(folder, name, change):
    """Changes the JSON file of a preset."""
    content = json.loads((folder / name).read_text())
    change(content["config"])
    (folder / name).write_text(json.dumps(content))


MHA = {"use_mha_bias": False, "use_patch_bias": False}
GAP, MLP = {"use_class_token": False}, {"use_mlp_bias": False}
WIDE, FLAT = ((8, 32), 8), ((12, 24), (6, 8))  # images and patches
HEADS = [  # a family, fields of its backbone, its images and patches, and what its head has
    ("ViT", {}, WIDE, {}),
    ("ViT", {"layer_norm_epsilon": 1e-3, **MLP}, FLAT, {"activation": "sigmoid"}),
    ("ViT", {"layer_norm_epsilon": 1e-3, **MHA}, FLAT, {"intermediate_dim": 6}),
    ("ViT", {**GAP, **MHA}, WIDE, {"activation": "sigmoid", "intermediate_dim": 6}),
    ("DeiT", {"layer_norm_epsilon": 1e-3}, ((16, 24), 8), {"activation": "softmax"}),
]


@pytest.mark.parametrize(("kind", "fields", "sizes", "head"), HEADS)
def test_every_option_of_a_classifier_agrees_in_both_directions(
    rng, tmp_path, kind, fields, sizes, head
):
    size, patch_size = sizes
    head = {"pooling": "gap" if GAP.items() <= fields.items() else "token", **head}
    theirs = backbone(rng, (*size, 3), kind, patch_size=patch_size, **fields)
    theirs = classifier(rng, theirs, kind, {"scale": 1 / 51, "offset": -2.0}, **head)
    preset, bare = tmp_path / "preset", tmp_path / "bare.weights.h5"
    theirs.save_to_preset(preset)
    theirs.save_weights(bare)
    with pytest.raises(ValueError, match="do not give .*`classifier`.*classifier=") as asked:
        vit_keras.open(bare)
    assert not isinstance(asked.value, DamagedFile)
    said = {"classifier": head["pooling"], "classifier_activation": head.get("activation")}
    epsilon = fields.get("layer_norm_epsilon", 1e-6)
    images = images_for(rng, size)
    opened = vit_keras.open(bare, **said, image_size=size, layer_norm_epsilon=epsilon)
    assert_agrees(opened, theirs, images)
    model = vit_keras.open(preset)
    assert_agrees(model, theirs, images)
    assert_agrees(weights.load(randomize(opened, rng), bare), theirs, images)
    randomize(model, rng, scale=0.2)
    weights.save(model, tmp_path / "back", format="keras_hub")
    back = getattr(models, f"{kind}ImageClassifier").from_preset(str(tmp_path / "back"))
    assert_agrees(model, back, images)
    pixels = rng.integers(0, 256, (1, *size, 3)).astype("uint8")
    assert_close(to_numpy(back.preprocessor(pixels)), pixels / 51 - 2)
    weights.save(model, tmp_path / "back.weights.h5", format="keras_hub")
    randomize(back, rng).load_weights(tmp_path / "back.weights.h5")
    assert_agrees(model, back, images)


@pytest.mark.parametrize("pooling", ["gap", "token"])
def test_classifiers_that_read_other_tokens_are_refused(rng, tmp_path, pooling):
    theirs = classifier(rng, backbone(rng, use_class_token=pooling == "gap"), pooling=pooling)
    theirs.save_to_preset(tmp_path / "preset")
    theirs.save_weights(tmp_path / "bare.weights.h5")
    said = {"image_size": (16, 24), "classifier": pooling, "classifier_activation": None}
    message = f"'{pooling}' with use_class_token={pooling == 'gap'}"
    for path, known in ((tmp_path / "preset", {}), (tmp_path / "bare.weights.h5", said)):
        for call in (
            lambda path=path, known=known: vit_keras.open(path, **known),
            lambda path=path: weights.load(build(classifier=pooling), path),
        ):
            with pytest.raises(ValueError, match=message) as refused:
                call()
            assert not isinstance(refused.value, DamagedFile)


def test_what_a_bare_file_does_not_say_is_stated(rng, tmp_path):
    classifier(rng, backbone(rng, (16, 16, 3))).save_weights(tmp_path / "a.weights.h5")
    for given, assumed in (
        ({}, "layer_norm_epsilon=1e-06, image_size=(16, 16), classifier_activation=None"),
        ({"image_size": 16, "classifier_activation": "softmax"}, "layer_norm_epsilon=1e-06"),
        ({"image_size": 16, "classifier_activation": None, "layer_norm_epsilon": 1e-6}, None),
    ):
        with warnings.catch_warnings(record=True, action="always") as stated:
            vit_keras.open(tmp_path / "a.weights.h5", classifier="token", **given)
        texts = [str(w.message) for w in stated if "is read as" in str(w.message)]
        assert len(texts) == (assumed is not None)
        assert all(f"with {assumed}, which the file does not state" in text for text in texts)


def test_other_activations_than_keras_own_are_refused(rng, tmp_path):
    activation = keras.layers.LeakyReLU()
    ours = build(rng, classifier_activation=activation)
    classifier(rng, backbone(rng), activation=activation).save_to_preset(tmp_path / "theirs")
    for call in (
        lambda: weights.save(ours, tmp_path / "ours", format="keras_hub"),
        lambda: vit_keras.open(tmp_path / "theirs"),
    ):
        with pytest.raises(ValueError, match="not interpret activation function"):
            call()
    assert not (tmp_path / "ours").exists()


def test_presets_of_earlier_versions_are_read(rng, tmp_path):
    theirs = classifier(rng, backbone(rng))
    theirs.save_to_preset(tmp_path)
    added = ("use_class_token", "use_patch_bias", "use_mha_bias", "use_mlp_bias", "pooling")
    for name, field in itertools.product(("config.json", "task.json"), added):
        edit(tmp_path, name, lambda config, field=field: config.pop(field, None))
    assert_agrees(vit_keras.open(tmp_path), theirs, images_for(rng))


def test_a_preset_of_channels_first_is_read(rng, tmp_path):
    theirs = backbone(rng, (3, 16, 24), data_format="channels_first")
    theirs.save_to_preset(tmp_path)
    images = images_for(rng)
    expected = to_numpy(theirs(images.transpose(0, 3, 1, 2)))[:, 0]
    assert_close(vit_keras.open(tmp_path)(images), expected, rtol=1e-5)


NORM = {"norm_mean": [0.5, 0.4, 0.3], "norm_std": [0.5, 0.6, 0.7]}  # of KerasHub 0.18


def test_pixels_are_scaled_as_by_the_converter(rng, tmp_path):
    classifier(rng, backbone(rng), converter={"scale": 1.0}).save_to_preset(tmp_path)
    images = rng.integers(0, 256, (2, 16, 24, 3)).astype("float32")

    def opened(**fields):
        converter = lambda config: config["preprocessor"]["config"]["image_converter"]["config"]
        edit(tmp_path, "task.json", lambda config: converter(config).update(fields))
        return vit_keras.open(tmp_path)

    for scale, offset in ((None, None), ([0.01, 0.02, 0.03], -1.0), (0.1, [1.0, 2.0, 3.0])):
        converter = keras_hub.layers.ViTImageConverter((16, 24), scale, offset)
        expected = to_numpy(converter(images))
        ours = opened(scale=scale, offset=offset)
        assert_close(ours.preprocessing.normalize(images), expected, rtol=1e-6)
    weights.save(ours, tmp_path / "ours", format="keras_hub")
    back = models.ViTImageClassifier.from_preset(str(tmp_path / "ours"))
    assert_close(back.preprocessor(images), expected)
    scaled = (expected - NORM["norm_mean"]) / NORM["norm_std"]
    assert_close(opened(**NORM).preprocessing.normalize(images), scaled, rtol=2e-6)
    with pytest.raises(ValueError, match="pad_to_aspect_ratio"):
        opened(pad_to_aspect_ratio=True)


VIT = {"patch_size": 8, "image_shape": (16, 16, 3)}
HOME = {**VIT, "position_embedding_shape": (16, 16, 3)}
GATED = {"use_gated_mlp": True, "hidden_activation": "silu"}
UNBIASED = {f"use_{name}_bias": False for name in ("query", "key", "value", "proj", "mlp")}
FEW = {"use_mask_token": False, "num_register_tokens": 0}
BACKBONES = {
    "deit": ("DeiT", {"patch_size": 8, "image_shape": (16, 24, 3), "layer_norm_epsilon": 1e-3}),
    "deit without biases": ("DeiT", {**VIT, "patch_size": (4, 8), "use_mha_bias": False}),
    "dinov2 registers": ("DINOV2", {**HOME, "num_register_tokens": 3}),
    "dinov2 swiglu": ("DINOV2", {**HOME, "use_swiglu_ffn": True, "name": "mine"}),
    "dinov3": ("DINOV3", {**VIT, "image_shape": (16, 32, 3), "use_key_bias": False}),
    "dinov3 gated": ("DINOV3", {**VIT, **GATED, "rope_theta": 50.0, "layer_norm_eps": 1e-3}),
    "dinov3 without much": ("DINOV3", {**VIT, **UNBIASED, **FEW}),
}


def written(rng, folder, name):
    """The class of a backbone, the backbone as KerasHub reads it from a preset, and images."""
    family, changes = BACKBONES[name]
    kind = getattr(models, f"{family}Backbone")
    randomize(kind(**DINO, **changes), rng, scale=0.2).save_to_preset(folder)
    return kind, kind.from_preset(str(folder)), images_for(rng, changes["image_shape"][:2])


def assert_same_tokens(ours, theirs, images):
    named = isinstance(theirs.input, dict)
    inputs = dict.fromkeys(theirs.input, images) if named else images
    tokens = to_numpy(theirs(inputs))
    assert_close(intermediates(ours)(images)["encoder_norm"], tokens, rtol=1e-5)
    assert_close(ours(images), tokens[:, 0], rtol=1e-5)


@pytest.mark.parametrize("name", BACKBONES)
def test_backbones_give_their_tokens_and_go_back(rng, tmp_path, name):
    kind, theirs, images = written(rng, tmp_path / "theirs", name)
    ours = vit_keras.open(tmp_path / "theirs")
    assert_same_tokens(ours, theirs, images)
    weights.save(ours, tmp_path / "ours", format="keras_hub")
    again = kind.from_preset(str(tmp_path / "ours"))
    assert_same_tokens(ours, again, images)
    assert_equal_weights(ours, vit_keras.open(tmp_path / "ours"))
    weights.save(ours, tmp_path / "ours.weights.h5", format="keras_hub")
    randomize(again, rng).load_weights(tmp_path / "ours.weights.h5")
    assert_same_tokens(ours, again, images)

    theirs.save_weights(tmp_path / "bare.weights.h5")
    randomize(ours, rng)
    assert_same_tokens(weights.load(ours, tmp_path / "bare.weights.h5"), theirs, images)
    known = {"image_size": ours.input_shape[1:3]}
    if "dinov3" in name:
        with pytest.raises(ValueError, match="do not give .*num_heads"):
            vit_keras.open(tmp_path / "bare.weights.h5")
        gated = "gated" in name
        known |= {"num_heads": 2, "layer_norm_epsilon": 1e-3 if gated else 1e-5}
        known |= {"rope": {"base": 50.0 if gated else 100.0, "centered": True}}
    if name == "deit":
        known["layer_norm_epsilon"] = 1e-3
    assert_same_tokens(vit_keras.open(tmp_path / "bare.weights.h5", **known), theirs, images)


@pytest.mark.parametrize(("registers", "antialias", "home"), [(0, True, 16), (3, False, 40)])
def test_dinov2_at_another_size_as_kerashub_interpolates(rng, tmp_path, registers, antialias, home):
    sizes = {"patch_size": 8, "image_shape": (24, 24, 3), "num_register_tokens": registers}
    sizes |= {"position_embedding_shape": (home, home, 3), "antialias_in_interpolation": antialias}
    theirs = models.DINOV2Backbone(**DINO, **sizes)
    randomize(theirs, rng, scale=0.2).save_to_preset(tmp_path)
    ours = vit_keras.open(tmp_path)
    assert ours.resizing == Resizing("bicubic_antialias" if antialias else "bicubic")
    for size, model in ((24, ours), (48, vit_keras.open(tmp_path, image_size=48))):
        theirs = models.DINOV2Backbone.from_preset(str(tmp_path), image_shape=(size, size, 3))
        assert_same_tokens(model, theirs, images_for(rng, (size, size)))
