"""The constructors behave like the constructors of `keras.applications`."""

import inspect

import keras
import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, randomize, shapes_only, to_numpy, weights_by_path
from vit_keras import applications
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.on("torch")

SMALL = {"input_shape": (32, 48, 3), "classes": 4}
VITS = {
    "ViTTi16": "Ti/16",
    "ViTS16": "S/16",
    "ViTS32": "S/32",
    "ViTB8": "B/8",
    "ViTB16": "B/16",
    "ViTB32": "B/32",
    "ViTL16": "L/16",
    "ViTL32": "L/32",
    "ViTH14": "H/14",
    "ViTmu16": "mu/16",
    "ViTM16": "M/16",
    "ViTSo400m14": "So400m/14",
    "ViTg14": "g/14",
    "ViTgOpt16": "g-opt/16",
    "ViTG14": "G/14",
    "ViTGOpt16": "G-opt/16",
    "ViTe14": "e/14",
}


AT_NIGHT = ("ViTg14", "ViTgOpt16", "ViTG14", "ViTGOpt16")  # as e, and each takes seconds


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.nightly] if name in AT_NIGHT else []) for name in VITS],
)
def test_constructors_have_the_signature_and_size_of_their_variant(name):
    build = getattr(applications, name)
    theirs = inspect.signature(keras.applications.ResNet50).parameters
    ours = inspect.signature(build).parameters
    assert list(ours) == [*theirs, "class_names"]
    assert {k: p.default for k, p in ours.items() if k not in ("weights", "name")} == {
        **{k: p.default for k, p in theirs.items() if k not in ("weights", "name")},
        "class_names": None,
    }
    assert build.__name__ == name and VITS[name] in build.__doc__
    variant = vit_keras.variants.get(VITS[name])
    with shapes_only():
        model = build()
    block = model.get_layer(f"encoderblock_{variant.num_layers - 1}")
    assert (block.num_heads, block.mlp_dim) == (variant.num_heads, variant.mlp_dim)
    assert model.get_layer("embedding").patch_size == (variant.patch_size,) * 2
    assert model.output_shape == (None, 1000) and model.input_shape == (None, 224, 224, 3)


@pytest.fixture(scope="module")
def tiny():
    rng = np.random.default_rng(5)
    model = randomize(applications.ViTTi16(**SMALL), rng, scale=0.1)
    images = rng.uniform(-1, 1, (2, 32, 48, 3)).astype("float32")
    return model, images


def test_top_is_a_softmax_of_the_logits(tiny):
    model, images = tiny
    logits = applications.ViTTi16(**SMALL, classifier_activation=None)
    logits.set_weights(model.get_weights())
    y = to_numpy(logits(images))
    expected = np.exp(y) / np.exp(y).sum(axis=-1, keepdims=True)
    assert_close(model(images), expected)
    assert model.layers[-1].activation.__name__ == "softmax"


@pytest.mark.parametrize("pooling", [None, "avg", "max"])
def test_output_without_top_is_the_normalized_tokens(tiny, pooling):
    model, images = tiny
    weights = [w for w in model.weights if not w.path.startswith("head")]
    bare = applications.ViTTi16(include_top=False, pooling=pooling, input_shape=(32, 48, 3))
    bare.set_weights([to_numpy(w.value) for w in weights])
    tokens = keras.Model(model.input, model.get_layer("encoder_norm").output)
    expected = to_numpy(tokens(images))
    if pooling:
        expected = {"avg": np.mean, "max": np.max}[pooling](expected[:, 1:], axis=1)
    assert_close(bare(images), expected)


def test_input_tensor_may_be_the_output_of_other_layers(tiny):
    model, _ = tiny
    inputs = keras.Input((32, 48, 2))
    x = keras.layers.Conv2D(3, 1)(inputs)
    joined = applications.ViTTi16(input_tensor=x, classes=4)
    for name, value in weights_by_path(model).items():
        next(w for w in joined.weights if w.path == name).assign(value)
    conv = joined.layers[1]
    pixels = np.random.default_rng(0).uniform(-1, 1, (2, 32, 48, 2)).astype("float32")
    expected = to_numpy(model(conv(pixels)))
    assert_close(joined(pixels), expected)


def test_pixels_are_scaled_as_the_source_of_the_weights_did(tiny, rng, monkeypatch):
    model, _ = tiny
    imagenet = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    monkeypatch.setattr(model, "preprocessing", imagenet)
    pixels = rng.integers(0, 256, (1, 4, 4, 3), dtype="uint8")
    expected = (pixels / 255 - imagenet.mean) / imagenet.std
    scaled = to_numpy(applications.preprocess_input(pixels, model=model))
    assert_close(scaled, expected)
