"""Presets and weights of KerasHub against KerasHub, in both directions."""

import itertools
import json
import re

import keras
import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, randomize, spread, to_numpy
from tests.weights.builds import assert_equal_weights, build
from vit_keras import weights
from vit_keras.models import VisionTransformer
from vit_keras.weights.containers import DamagedFile

pytestmark = pytest.mark.on("torch")

keras_hub = pytest.importorskip("keras_hub")

SIZES = {"patch_size": 8, "num_layers": 3, "num_heads": 3, "hidden_dim": 24, "mlp_dim": 40}


def backbone(rng, image_shape=(16, 24, 3), **changes):
    model = keras_hub.models.ViTBackbone(image_shape, **{**SIZES, **changes})
    return randomize(model, rng, scale=0.2)


def classifier(rng, pooling="token", intermediate_dim=None, **changes):
    converter = keras_hub.layers.ViTImageConverter(image_size=(16, 24), scale=1 / 51, offset=-2.0)
    preprocessor = keras_hub.models.ViTImageClassifierPreprocessor(converter)
    model = keras_hub.models.ViTImageClassifier(
        backbone(rng, use_class_token=pooling == "token", **changes),
        5,
        preprocessor=preprocessor,
        pooling=pooling,
        intermediate_dim=intermediate_dim,
    )
    return randomize(model, rng, scale=0.2)


def images_for(rng, channels=3):
    return rng.uniform(-1, 1, (3, 16, 24, channels)).astype("float32")


@pytest.mark.parametrize("pooling", ["token", "gap"])
@pytest.mark.parametrize("intermediate_dim", [None, 9])
def test_preset_gives_its_logits(rng, tmp_path, pooling, intermediate_dim):
    theirs = classifier(rng, pooling, intermediate_dim, layer_norm_epsilon=1e-4)
    theirs.save_to_preset(tmp_path)
    ours, images = vit_keras.open(tmp_path), images_for(rng)
    assert_close(ours(images), theirs(images))
    assert ours.preprocessing.std == pytest.approx((0.2,))
    assert ours.preprocessing.mean == pytest.approx((0.4,))
    assert ours.get_layer("encoderblock_2").layer_norm_epsilon == 1e-4


@pytest.mark.parametrize(
    ("ours_classifier", "size"), [("token", None), ("token", 9), ("gap", None), ("gap", 9)]
)
def test_saved_preset_opens_in_keras_hub(rng, tmp_path, ours_classifier, size):
    ours = build(rng, num_layers=3, classifier=ours_classifier, representation_size=size)
    weights.save(ours, tmp_path, format="keras_hub")
    theirs, images = keras_hub.models.ViTImageClassifier.from_preset(str(tmp_path)), images_for(rng)
    assert_close(theirs(images), ours(images))
    assert_equal_weights(ours, vit_keras.open(tmp_path))
    pixels = rng.integers(0, 256, (1, 16, 24, 3)).astype("uint8")
    prepared = to_numpy(theirs.preprocessor(pixels))
    assert_close(prepared, pixels / 127.5 - 1)


OPTIONS = {
    "use_class_token": [True, False],
    "pooling": ["token", "gap"],
    "activation": [None, "softmax", "sigmoid"],
    "layer_norm_epsilon": [1e-6, 1e-3],
    "biases": [(), ("use_mlp_bias",), ("use_mha_bias", "use_patch_bias")],
    "sizes": [((16, 16), 8), ((16, 24), 8), ((8, 32), 8), ((12, 24), (6, 8))],
    "intermediate_dim": [None, 6],
}
REASONS = {"gap": "averages the class token with the patches", "token": "reads the first patch"}


def assert_agrees(ours, theirs, images):
    assert_close(ours(images), theirs(images), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:keras_hub (prepares|computes)")
@spread(**OPTIONS)
def test_every_option_agrees_or_is_refused(
    rng,
    tmp_path,
    use_class_token,
    pooling,
    activation,
    layer_norm_epsilon,
    biases,
    sizes,
    intermediate_dim,
):
    size, patch_size = sizes
    backbone = keras_hub.models.ViTBackbone(
        (*size, 3),
        **{**SIZES, "patch_size": patch_size, "num_layers": 2},
        use_class_token=use_class_token,
        layer_norm_epsilon=layer_norm_epsilon,
        **dict.fromkeys(biases, False),
    )
    head = {"pooling": pooling, "activation": activation, "intermediate_dim": intermediate_dim}
    theirs = randomize(keras_hub.models.ViTImageClassifier(backbone, 5, **head), rng, scale=0.2)
    preset, bare = tmp_path / "preset", tmp_path / "bare.weights.h5"
    theirs.save_to_preset(preset)
    theirs.save_weights(bare)
    said = {
        "image_size": size,
        "classifier": pooling,
        "layer_norm_epsilon": layer_norm_epsilon,
        "classifier_activation": activation,
    }
    sizes = {"patch_size": patch_size, "hidden_size": 24, "num_layers": 2, "num_heads": 3}
    ours = {"mlp_dim": 40, "num_classes": 5, "representation_size": intermediate_dim}
    model = VisionTransformer(**said, **sizes, **ours)
    with pytest.raises(ValueError, match="do not say .*`classifier`.*classifier=") as asked:
        vit_keras.open(bare)
    assert not isinstance(asked.value, DamagedFile)
    if use_class_token != (pooling == "token"):
        for call in (
            lambda: vit_keras.open(preset),
            lambda: weights.load(model, preset),
            lambda: vit_keras.open(bare, **said),
            lambda: weights.load(model, bare),
        ):
            with pytest.raises(ValueError, match=REASONS[pooling]) as refused:
                call()
            assert not isinstance(refused.value, DamagedFile)
        return
    images = rng.uniform(-1, 1, (2, *size, 3)).astype("float32")
    assert_agrees(vit_keras.open(bare, **said), theirs, images)
    assert_agrees(weights.load(model, bare), theirs, images)
    model = vit_keras.open(preset)
    assert_agrees(model, theirs, images)
    randomize(model, rng, scale=0.2)
    weights.save(model, tmp_path / "back", format="keras_hub")
    opened = keras_hub.models.ViTImageClassifier.from_preset(str(tmp_path / "back"))
    assert_agrees(model, opened, images)
    weights.save(model, tmp_path / "back.weights.h5", format="keras_hub")
    randomize(opened, rng).load_weights(tmp_path / "back.weights.h5")
    assert_agrees(model, opened, images)


@pytest.mark.parametrize(
    ("given", "assumed"),
    [
        ({}, "layer_norm_epsilon=1e-06, image_size=(16, 16), classifier_activation=None"),
        ({"layer_norm_epsilon": 1e-3}, "image_size=(16, 16), classifier_activation=None"),
        ({"image_size": 16, "classifier_activation": "softmax"}, "layer_norm_epsilon=1e-06"),
        ({"image_size": 16, "classifier_activation": None, "layer_norm_epsilon": 1e-6}, None),
    ],
)
def test_what_a_bare_file_does_not_say_is_stated(rng, tmp_path, recwarn, given, assumed):
    theirs = keras_hub.models.ViTImageClassifier(backbone(rng, (16, 16, 3)), 5)
    theirs.save_weights(tmp_path / "a.weights.h5")
    vit_keras.open(tmp_path / "a.weights.h5", classifier="token", **given)
    stated = [str(w.message) for w in recwarn if "is read as" in str(w.message)]
    assert len(stated) == (assumed is not None)
    assert all(f"with {assumed}, which it does not say" in text for text in stated)


def test_classifiers_that_read_other_tokens_are_refused(rng, tmp_path):
    classifier(rng, "gap").save_to_preset(tmp_path)
    with pytest.raises(ValueError, match='classifier "token" or "gap".*\'gap_norm\''):
        weights.load(build(classifier="gap_norm", num_layers=3), tmp_path)
    edited = json.loads((tmp_path / "task.json").read_text())
    edited["config"]["pooling"] = None  # KerasHub then has logits of each token
    (tmp_path / "task.json").write_text(json.dumps(edited))
    with pytest.raises(ValueError, match="pooling=None .*reads every token"):
        vit_keras.open(tmp_path)


def test_the_activation_of_a_loaded_head_stays_and_is_stated(rng, tmp_path):
    theirs = keras_hub.models.ViTImageClassifier(backbone(rng), 5, activation=keras.ops.softmax)
    randomize(theirs, rng, scale=0.2).save_to_preset(tmp_path)
    images, ours = images_for(rng), build(num_layers=3)
    with pytest.warns(UserWarning, match="activation 'softmax'.*None, which is kept"):
        weights.load(ours, tmp_path)
    probabilities = keras.ops.softmax(ours(images))
    np.testing.assert_allclose(to_numpy(probabilities), to_numpy(theirs(images)), atol=1e-5)
    assert_agrees(vit_keras.open(tmp_path), theirs, images)


@keras.saving.register_keras_serializable("tests")
def doubled(x):
    return 2 * x


@pytest.mark.parametrize("activation", [doubled, keras.layers.LeakyReLU(), lambda x: x])
def test_other_activations_than_keras_own_are_refused(rng, tmp_path, activation):
    ours = build(rng, classifier_activation=activation)
    with pytest.raises(ValueError, match=r"one of `keras\.activations`\. Received"):
        weights.save(ours, tmp_path / "ours", format="keras_hub")
    assert not (tmp_path / "ours").exists()
    if "lambda" in str(activation):
        return  # which KerasHub cannot save
    theirs = keras_hub.models.ViTImageClassifier(backbone(rng), 5, activation=activation)
    theirs.save_to_preset(tmp_path / "theirs")
    with pytest.raises(ValueError, match=r"one of `keras\.activations`\. Received"):
        vit_keras.open(tmp_path / "theirs")


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_half_types_are_read_exactly(rng, tmp_path, dtype):
    theirs = keras_hub.models.ViTImageClassifier(backbone(rng, dtype=dtype), 5, head_dtype=dtype)
    theirs.save_to_preset(tmp_path)
    exact = keras_hub.models.ViTImageClassifier(backbone(rng), 5)
    for variable, half in zip(exact.weights, theirs.weights):
        variable.assign(keras.ops.cast(half, "float32"))
    assert_agrees(vit_keras.open(tmp_path), exact, images_for(rng))


def test_presets_of_earlier_versions_are_read(rng, tmp_path):
    theirs = classifier(rng)
    theirs.save_to_preset(tmp_path)
    added = ("use_class_token", "use_patch_bias", "use_mha_bias", "use_mlp_bias", "pooling")
    for name in ("config.json", "task.json"):
        content = json.loads((tmp_path / name).read_text())
        content["config"] = {k: v for k, v in content["config"].items() if k not in added}
        (tmp_path / name).write_text(json.dumps(content))
    assert_agrees(vit_keras.open(tmp_path), theirs, images_for(rng))


def test_a_preset_of_channels_first_is_read(rng, tmp_path):
    theirs = backbone(rng, (3, 16, 24), data_format="channels_first")
    theirs.save_to_preset(tmp_path)
    images = images_for(rng)
    expected = to_numpy(theirs(images.transpose(0, 3, 1, 2)))[:, 0]
    ours = vit_keras.open(tmp_path)
    np.testing.assert_allclose(to_numpy(ours(images)), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "pixels",
    [
        {},
        {"scale": 1 / 255},
        {"offset": -100.0},
        {"scale": [0.01, 0.02, 0.03], "offset": -1.0},
        {"scale": 0.1, "offset": [1.0, 2.0, 3.0]},
    ],
)
def test_pixels_are_scaled_as_by_the_converter(rng, tmp_path, pixels):
    converter = keras_hub.layers.ViTImageConverter(image_size=(16, 24), **pixels)
    preprocessor = keras_hub.models.ViTImageClassifierPreprocessor(converter)
    theirs = keras_hub.models.ViTImageClassifier(backbone(rng), 5, preprocessor=preprocessor)
    theirs.save_to_preset(tmp_path)
    images = rng.integers(0, 256, (2, 16, 24, 3)).astype("float32")
    expected = to_numpy(converter(images))
    scale = np.abs(expected).max()
    prepared = vit_keras.open(tmp_path).preprocessing.normalize(images)
    np.testing.assert_allclose(prepared, expected, atol=1e-6 * scale, rtol=0)
    edited = json.loads((tmp_path / "task.json").read_text())
    fields = edited["config"]["preprocessor"]["config"]["image_converter"]["config"]
    fields |= {"norm_mean": [0.5, 0.4, 0.3], "norm_std": [0.5, 0.6, 0.7]}  # KerasHub 0.18
    (tmp_path / "task.json").write_text(json.dumps(edited))
    prepared = vit_keras.open(tmp_path).preprocessing.normalize(images)
    expected = (expected - [0.5, 0.4, 0.3]) / [0.5, 0.6, 0.7]
    np.testing.assert_allclose(prepared, expected, atol=2e-6 * scale, rtol=0)
    fields |= {"pad_to_aspect_ratio": True}
    (tmp_path / "task.json").write_text(json.dumps(edited))
    with pytest.raises(ValueError, match="pad_to_aspect_ratio"):
        vit_keras.open(tmp_path)


TINY = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
VIT = {"patch_size": 8, "image_shape": (16, 16, 3)}
TEXT = {"vocabulary_size": 10, "max_sequence_length": 4}


def clip(family):
    vision = getattr(keras_hub.models, f"{family}VisionEncoder")(**TINY, **VIT)
    text = getattr(keras_hub.models, f"{family}TextEncoder")(embedding_dim=8, **TINY, **TEXT)
    sizes = {"projection_dim": 8} if family == "CLIP" else {}
    return getattr(keras_hub.models, f"{family}Backbone")(vision, text, **sizes)


OTHER_CLASSES = {
    "ViTDetBackbone": lambda: keras_hub.models.ViTDetBackbone(
        **{"hidden_size" if k == "hidden_dim" else k: v for k, v in TINY.items()},
        **VIT,
        global_attention_layer_indices=[0],
        num_output_channels=4,
        window_size=2,
    ),
    "CLIPBackbone": lambda: clip("CLIP"),
    "CLIPVisionEncoder": lambda: keras_hub.models.CLIPVisionEncoder(**TINY, **VIT),
    "SigLIPBackbone": lambda: clip("SigLIP"),
    "MiTBackbone": lambda: keras_hub.models.MiTBackbone(
        layerwise_num_heads=[1],
        layerwise_sr_ratios=[2],
        max_drop_path_rate=0.1,
        layerwise_patch_sizes=[7],
        layerwise_strides=[4],
        num_layers=1,
        layerwise_depths=[1],
        image_shape=(32, 32, 3),
        hidden_dims=[4],
    ),
    "BertBackbone": lambda: keras_hub.models.BertBackbone(**TINY, **TEXT),
}


@pytest.mark.parametrize("name", OTHER_CLASSES)
def test_other_classes_are_refused_by_name(tmp_path, name):
    theirs = OTHER_CLASSES[name]()
    theirs.save_to_preset(tmp_path / "preset")
    theirs.save_weights(tmp_path / "bare.weights.h5")
    family = re.match("(.*?)(Backbone|ImageClassifier|VisionEncoder)", name)[1]
    calls = (vit_keras.open, weights.describe, lambda file: weights.load(build(), file))
    for path, call in itertools.product(("preset", "bare.weights.h5"), calls):
        with pytest.raises(
            ValueError, match="classifiers of ViT and DeiT are read; nothing is read of ViTDet"
        ) as refused:
            call(tmp_path / path)
        assert not isinstance(refused.value, DamagedFile)
        said = str(refused.value).replace(str(tmp_path), "").replace("_", "")
        assert (f"'keras_hub>{family}" if path == "preset" else family).replace(
            "_", ""
        ).lower() in (said.lower())
