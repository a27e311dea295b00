"""The model equals Eq. 1-4 in NumPy and the published code in outputs and counts."""

import inspect
import json

import keras
import numpy as np
import pytest

from tests import reference
from tests.helpers import GOLDEN, assert_close, randomize, shapes_only, spread, weights_by_path
from vit_keras import variants
from vit_keras.config import ModelConfig
from vit_keras.models import VisionTransformer, from_model_config

SMALL = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 40, "num_classes": 5}


@spread(
    classifier=["token", "gap", "map", "gap_norm"],
    representation_size=[None, 11],
    sizes=[(16, 4, 3, "exact", 1e-6), ((8, 20), (4, 5), 2, "tanh", 1e-3)],
)
def test_logits_equal_the_formulas(rng, classifier, representation_size, sizes):
    image_size, patch_size, channels, gelu, epsilon = sizes
    model = VisionTransformer(
        image_size,
        patch_size,
        **SMALL,
        classifier=classifier,
        representation_size=representation_size,
        gelu=gelu,
        layer_norm_epsilon=epsilon,
        channels=channels,
    )
    randomize(model, rng, scale=0.15)
    images = rng.uniform(-1, 1, (3, *model.input_shape[1:])).astype("float32")
    expected = reference.forward(
        images,
        weights_by_path(model),
        num_layers=2,
        classifier=classifier,
        gelu=gelu,
        epsilon=epsilon,
    )
    assert_close(model(images), expected["logits"])


def published_to_ours(name):
    """Translates a name of the published Flax code (Linen numbering) to a path of this package."""
    name = name.removeprefix("Transformer/")
    for old, new in [
        ("MultiHeadDotProductAttention_0", "MultiHeadDotProductAttention_1"),
        ("LayerNorm_1", "LayerNorm_2"),
        ("MlpBlock_0", "MlpBlock_3"),
    ]:
        name = name.replace(old, new)
    layer, _, leaf = name.rpartition("/")
    if "norm" in layer.lower():
        leaf = {"scale": "gamma", "bias": "beta"}[leaf]
    return "cls/cls" if name == "cls" else f"{layer}/{leaf}"


@pytest.mark.parametrize("name", ["vit_token", "vit_token_prelogits", "vit_gap"])
def test_logits_equal_the_published_code(name):
    config = json.loads((GOLDEN / f"{name}.json").read_text())
    arguments = inspect.signature(VisionTransformer).parameters
    model = VisionTransformer(**{k: v for k, v in config.items() if k in arguments}, gelu="tanh")
    with np.load(GOLDEN / f"{name}.npz") as file:
        published = {published_to_ours(key): file[key] for key in file.files}
    assert published.keys() == {weight.path for weight in model.weights}
    for weight in model.weights:
        weight.assign(published[weight.path])
    with np.load(GOLDEN / f"{name}.io.npz") as io:
        assert_close(model(io["images"]), io["logits"])


COUNTS = {
    "Ti/16": 5_717_416,
    "S/16": 22_050_664,
    "S/32": 22_878_952,
    "B/8": 86_576_872,
    "B/16": 86_567_656,
    "B/32": 88_224_232,
    "L/16": 304_326_632,
    "L/32": 306_535_400,
    "H/14": 632_045_800,
    # big_vision's `Model(1000, variant=..., pool_type="gap")`, and a class token with its position.
    "mu/16": 76_648 + 2 * 32,
    "M/16": 38_836_712 + 2 * 512,
    "So400m/14": 413_595_352 + 2 * 1152,
    "g/14": 1_012_608_616 + 2 * 1408,
    "g-opt/16": 1_136_283_112 + 2 * 1536,
    "G/14": 1_844_437_352 + 2 * 1664,
    "G-opt/16": 1_665_023_464 + 2 * 1536,
    "e/14": 3_807_210_728 + 2 * 1792,
}


AT_NIGHT = ("g-opt/16", "G/14", "G-opt/16", "e/14", "M/16")  # seconds each, as g


@pytest.mark.once
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(name, marks=[pytest.mark.nightly] if name in AT_NIGHT else [])
        for name in COUNTS
    ],
)
def test_parameter_counts_are_the_published(variant):
    size = variants.architecture(variant, image_size=224, num_classes=1000)
    gap = COUNTS[variant] - 2 * size["hidden_size"]  # no class token, nor a position for it
    with shapes_only():  # H/14 takes 2.5 GB
        assert VisionTransformer(**size).count_params() == COUNTS[variant]
        assert VisionTransformer(**size, classifier="gap").count_params() == gap


@pytest.mark.once
def test_stochastic_depth_grows_linearly():
    model = VisionTransformer(8, 4, 16, 3, 2, 32, num_classes=None, stochastic_depth_rate=0.4)
    rates = [model.get_layer(f"encoderblock_{i}").stochastic_depth_rate for i in range(3)]
    assert rates == pytest.approx([0.0, 0.2, 0.4])


@pytest.mark.on("torch")
@pytest.mark.parametrize("variant", ["Ti/16", "R26+S/32", "R50x1"])
def test_the_configured_head_bias_is_where_the_classifier_starts(variant):
    sizes = {} if variant == "R50x1" else {"num_layers": 1, "num_heads": 2}
    config = ModelConfig(variant, image_size=32, head_bias=-6.5, **sizes)
    kernel, bias = from_model_config(config, num_classes=3).get_layer("head").get_weights()
    np.testing.assert_array_equal(bias, [-6.5] * 3)
    assert not kernel.any()


@pytest.mark.once
def test_the_configuration_decides_about_rematerialization():
    config = ModelConfig("Ti/16", image_size=16, num_layers=1, rematerialize=True)
    with shapes_only():
        assert from_model_config(config, num_classes=3).get_layer("encoderblock_0").rematerialize
    with pytest.raises(ValueError, match=r"'R50x1' has no model\.rematerialize"):
        ModelConfig("R50x1", rematerialize=True).arguments()


def test_mixed_precision_ends_in_float32():
    model = VisionTransformer(16, 4, **SMALL, dtype="mixed_bfloat16")
    assert model.get_layer("encoderblock_0").compute_dtype == "bfloat16"
    assert {keras.backend.standardize_dtype(w.dtype) for w in model.weights} == {"float32"}
    assert keras.backend.standardize_dtype(model(np.zeros((1, 16, 16, 3))).dtype) == "float32"
