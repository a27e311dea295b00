"""The constructors behave like the constructors of `keras.applications`."""

import dataclasses
import inspect

import keras
import numpy as np
import pytest

from tests import resnet_reference
from tests.helpers import assert_close, randomize, shapes_only, to_numpy, weights_by_path
from vit_keras import applications, variants
from vit_keras.applications import decode_predictions
from vit_keras.layers.common import pair
from vit_keras.models import Preprocessing, VisionTransformer, from_variant, intermediates
from vit_keras.variants.families import FAMILIES
from vit_keras.weights import save

pytestmark = pytest.mark.on("torch")

# Each constructor's variant, and the published parameters with 1000 classes and images of 224
# pixels. R50+B/32 and R50+L/16 are derived from the counts of B/32 and L/16.
TABLE = """
    ViTTi16 Ti/16 5717416      ViTS16 S/16 22050664       ViTS32 S/32 22878952
    ViTB8 B/8 86576872         ViTB16 B/16 86567656       ViTB32 B/32 88224232
    ViTL16 L/16 304326632      ViTL32 L/32 306535400      ViTH14 H/14 632045800
    RViTTi16 R+Ti/16 6337704   R26ViTS32 R26+S/32 36431912   R26ViTB32 R26+B/32 101383976
    R50ViTB16 R50+B/16 98659112   R50ViTB32 R50+B/32 110945832
    R50ViTL16 R50+L/16 316483624  R50ViTL32 R50+L/32 328994856
"""
ROWS = TABLE.split()
VITS = {name: (v, int(count)) for name, v, count in zip(ROWS[::3], ROWS[1::3], ROWS[2::3])}
VITS |= {  # big_vision's `Model(1000, variant=..., pool_type="gap")`, and a token and its position
    "ViTmu16": ("mu/16", 76_648 + 2 * 32),
    "ViTM16": ("M/16", 38_836_712 + 2 * 512),
    "ViTSo400m14": ("So400m/14", 413_595_352 + 2 * 1152),
    "ViTg14": ("g/14", 1_012_608_616 + 2 * 1408),
    "ViTgOpt16": ("g-opt/16", 1_136_283_112 + 2 * 1536),
    "ViTG14": ("G/14", 1_844_437_352 + 2 * 1664),
    "ViTGOpt16": ("G-opt/16", 1_665_023_464 + 2 * 1536),
    "ViTe14": ("e/14", 3_807_210_728 + 2 * 1792),
}
AT_NIGHT = ("ViTg14", "ViTgOpt16", "ViTG14", "ViTGOpt16", "BiTR152x2", "BiTR200x3")  # seconds each
# Units of each stage: R50, R101 and R152 from arXiv 1512.03385, R200 from arXiv 1603.05027.
UNITS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}


def count_of_bit(depth, width):
    """Counts the parameters of BiT: kernels, scales and biases of the norms, and the head."""
    root = last = 64 * width
    total = 7 * 7 * 3 * root
    for stage, units in enumerate(UNITS[depth]):
        inner = root * 2**stage
        for unit in range(units):
            shortcut = last * 4 * inner if unit == 0 else 0
            total += last * inner + 13 * inner**2 + shortcut + 2 * (last + 2 * inner)
            last = 4 * inner
    return total + 2 * last + 1000 * (last + 1)


BITS = {f"BiT{v}": (v, count_of_bit(*map(int, v[1:].split("x")))) for v in variants.RESNETS}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.nightly] if name in AT_NIGHT else [])
        for name in [*VITS, *BITS]
    ],
)
def test_constructors_have_the_signature_and_size_of_their_variant(name):
    build = getattr(applications, name)
    theirs = inspect.signature(keras.applications.ResNet50).parameters
    ours = inspect.signature(build).parameters
    assert list(ours) == [*theirs, "class_names"] and ours["class_names"].default is None
    for parameter in theirs.keys() - {"weights", "name"}:
        assert ours[parameter].default == theirs[parameter].default
    variant, count = {**VITS, **BITS}[name]
    assert build.__name__ == name and variant in build.__doc__ and name in applications.__all__
    row = variants.get(variant)
    with shapes_only():
        model = build()
        assert model.count_params() == count
        if name in VITS:
            assert model.get_layer("encoderblock_0").num_heads == row.num_heads
    assert model.get_layer("head").activation is keras.activations.softmax
    assert model.output_shape == (None, 1000) and model.input_shape == (None, 224, 224, 3)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_each_family_is_built_as_its_rows_say(family):
    size = next(iter(family.sizes))
    row = variants.get(family.variant(size))
    finds = "boxes" in row.arguments  # its classes are the published ones
    with shapes_only():
        model = getattr(applications, family.function_of(size))()
        classes = row.arguments["num_classes"] if finds else 1000
        expected = from_variant(family.variant(size), num_classes=classes)
        shapes = [weight.shape for weight in model.weights]
        assert shapes == [weight.shape for weight in expected.weights]
    assert model.input_shape == (None, *pair(row.image_size, "image_size"), 3)
    assert finds or model.layers[-1].activation is keras.activations.softmax
    assert model.preprocessing.mean == family.preprocessing["mean"]
    assert model.resizing.positions == family.resizing


# A constructor of each way to read the tokens, and the number of tokens before the patches.
PREFIXES = {
    "ViTTi16": 1,
    "DINOv2S14Reg": 5,
    "SigLIPB16": 0,
    "PECoreB16": 1,
    "DeiTS16Distilled": 2,
    "BEiTB16": 1,
    "ViTReg4B16": 4,
    "R50ViTB16": 1,
}
TINY = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24}


@pytest.mark.parametrize("name", PREFIXES)
def test_output_without_top_is_all_normalized_tokens_and_poolings_are_over_the_patches(
    name, tmp_path, monkeypatch
):
    variant = applications.OF_FAMILIES.get(name) or VITS[name][0]
    row = dataclasses.replace(variants.get(variant), **TINY)
    if getattr(row, "arguments", {}).get("map_heads"):
        row = dataclasses.replace(row, arguments={**row.arguments, "map_heads": 4})
    if name == "R50ViTB16":
        row = dataclasses.replace(row, resnet_layers=(1,), resnet_width=0.5)
    monkeypatch.setitem(variants.VARIANTS, variant, row)
    shape = (2 * row.stride, 3 * row.stride, 3)
    images = np.random.default_rng(1).uniform(-1, 1, (2, *shape)).astype("float32")
    build, before = getattr(applications, name), PREFIXES[name]
    whole = randomize(build(input_shape=shape, classes=3), np.random.default_rng(2))
    save(whole, tmp_path / "whole.keras")
    outputs = {}
    for pooling in (None, "avg", "max"):
        options = {"input_shape": shape, "include_top": False, "pooling": pooling}
        model = build(**options, weights=str(tmp_path / "whole.keras"))
        outputs[pooling] = to_numpy(model(images))
        assert model.preprocessing == whole.preprocessing and model.resizing == whole.resizing
    tokens = outputs[None]
    assert tokens.shape == (2, before + 6, 16)
    last = to_numpy(intermediates(whole)(images)["encoderblock_1"])
    centered = last - last.mean(axis=-1, keepdims=True)
    gamma, beta = (weights_by_path(whole)[f"encoder_norm/{name}"] for name in ("gamma", "beta"))
    epsilon = whole.get_layer("encoderblock_0").layer_norm_epsilon
    expected = centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + epsilon)
    assert_close(tokens, expected * gamma + beta)
    assert_close(outputs["avg"], tokens[:, before:].mean(axis=1))
    assert_close(outputs["max"], tokens[:, before:].max(axis=1), rtol=2e-6)


@pytest.mark.parametrize("pooling", [None, "avg", "max"])
def test_bit_without_top_gives_its_normalized_map(rng, monkeypatch, pooling):
    monkeypatch.setitem(variants.VARIANTS, "R50x1", variants.ResNetVariant((1, 1), 0.5))
    build, shape = applications.BiTR50x1, (20, 33, 4)
    model = randomize(build(include_top=False, input_shape=shape, pooling=pooling), rng)
    images = rng.uniform(-1, 1, (2, *shape)).astype("float32")
    expected = resnet_reference.bit(images, weights_by_path(model), (1, 1))["relu"]  # (B, h, w, C)
    if pooling is not None:
        expected = {"avg": np.mean, "max": np.max}[pooling](expected, axis=(1, 2))
    assert_close(model(images), expected)


NAMES = ["cat", "dog", "<owl> & co", "emu"]
SHAPE = (32, 48, 3)


@pytest.fixture(scope="module")
def tiny():
    """A model with names, and images."""
    rng = np.random.default_rng(5)
    build = applications.ViTTi16(input_shape=SHAPE, class_names=NAMES)
    return randomize(build, rng, scale=0.1), rng.uniform(-1, 1, (3, *SHAPE)).astype("float32")


def test_pixels_are_scaled_as_the_source_of_the_weights_did(tiny, rng, monkeypatch):
    imagenet = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    monkeypatch.setattr(tiny[0], "preprocessing", imagenet)
    pixels = rng.integers(0, 256, (1, 4, 4, 3), dtype="uint8")
    scaled = applications.preprocess_input(pixels, model=tiny[0])
    assert_close(scaled, (pixels / 255 - imagenet.mean) / imagenet.std)
    first = np.moveaxis(pixels, -1, 1).astype("float32")
    theirs = keras.applications.resnet_v2.preprocess_input(first.copy(), "channels_first")
    ours = applications.preprocess_input(first, "channels_first")
    np.testing.assert_array_equal(to_numpy(ours), theirs)  # of the scale of a model without weights


def test_predictions_are_decoded_by_an_argument_the_model_or_imagenets_names(
    tiny, rng, monkeypatch
):
    model, images = tiny
    assert list(model.class_names) == NAMES and model.output_shape == (None, 4)
    preds = to_numpy(model(images))
    expected = [
        [(NAMES[k], NAMES[k], scores[k]) for k in sorted(range(4), key=lambda k: -scores[k])[:2]]
        for scores in preds
    ]
    assert decode_predictions(preds, top=2, class_names=NAMES) == expected
    assert decode_predictions(keras.ops.convert_to_tensor(preds), top=2, model=model) == expected
    assert [len(row) for row in decode_predictions(preds, model=model)] == [4] * 3
    renamed = decode_predictions(preds, top=1, class_names=list("wxyz"), model=model)
    assert [row[0][0] for row in renamed] == ["wxyz"[k] for k in preds.argmax(axis=1)]
    # ImageNet's index as Keras downloads it, with ids of our own.
    index = {str(k): [f"n{k:08}", f"class {k}"] for k in range(1000)}
    monkeypatch.setattr("keras.src.applications.imagenet_utils.CLASS_INDEX", index)
    preds = rng.uniform(size=(2, 1000)).astype("float32")
    theirs = keras.applications.resnet50.decode_predictions(preds, top=3)
    assert decode_predictions(preds, top=3) == theirs
    nameless = VisionTransformer(8, 4, 12, 1, 3, 20, 1000)
    assert decode_predictions(preds, top=3, model=nameless) == theirs
