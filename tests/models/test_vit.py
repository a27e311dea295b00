"""Models equal Eq. 1-4 and BiT's loops in NumPy."""

import keras
import numpy as np
import pytest

from tests import reference, resnet_reference
from tests.helpers import assert_close, randomize, spread, to_numpy, weights_by_path
from vit_keras import models
from vit_keras.config import ModelConfig
from vit_keras.layers import EncoderBlock
from vit_keras.models import HybridViT, ResNet, VisionTransformer, from_model_config, positions_of

SMALL = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 40, "num_classes": 5}
STEM = {"resnet_layers": (1, 2), "resnet_width": 0.5, "patch_size": 1}
OFF = pytest.mark.nightly_on("jax")  # which compiles each operation by itself


def images_for(model, rng, size=None):
    shape = (2, *(size or model.input_shape[1:3]), model.input_shape[-1])
    return rng.uniform(-1, 1, shape).astype("float32")


@spread(
    classifier=["token", "gap", "map", "gap_norm"],
    representation_size=[None, 11],
    sizes=[(16, 4, 3, "exact", 1e-6), ((8, 20), (4, 5), 2, "tanh", 1e-3)],
)
def test_logits_equal_the_formulas(rng, classifier, representation_size, sizes):
    image_size, patch_size, channels, gelu, epsilon = sizes
    chosen = {"classifier": classifier, "gelu": gelu}
    model = VisionTransformer(
        *(image_size, patch_size),
        **{**SMALL, **chosen},
        representation_size=representation_size,
        layer_norm_epsilon=epsilon,
        channels=channels,
    )
    randomize(model, rng, scale=0.15)
    images, weights = images_for(model, rng), weights_by_path(model)
    expected = reference.forward(images, weights, num_layers=2, epsilon=epsilon, **chosen)
    assert_close(model(images), expected["logits"])


@pytest.mark.parametrize(
    ("image_size", "stem", "numerics"),
    [
        ((32, 48), STEM, {}),
        pytest.param((32, 64), {**STEM, "resnet_layers": (), "patch_size": (8, 4)}, {}, marks=OFF),
        pytest.param(
            *((24, 16), STEM, {"standardization": "timm", "group_norm_epsilon": 1e-3}), marks=OFF
        ),
    ],
)
def test_logits_of_hybrids_equal_the_formulas(rng, image_size, stem, numerics):
    model = HybridViT(image_size, **stem, **SMALL, **numerics)
    randomize(model, rng, scale=0.15)
    images, weights = images_for(model, rng), weights_by_path(model)
    conventions = (numerics.get("standardization", "vit"), numerics.get("group_norm_epsilon", 1e-6))
    maps = resnet_reference.stem(
        images.astype("float64"), weights, stem["resnet_layers"], *conventions
    )
    expected = reference.forward(maps, weights, num_layers=2)
    outputs = models.intermediates(model)(images)
    for name in ("encoderblock_0", "encoderblock_1"):
        assert_close(outputs[name], expected[name], rtol=1e-5)
    assert_close(outputs["head"], expected["logits"], rtol=1e-5)
    attention = models.attention_maps(model)(images)
    assert_close(attention, expected["attention"], rtol=2e-5)
    assert models.patch_grid(model) == tuple(np.array(maps.shape[1:3]) // stem["patch_size"])


@pytest.mark.parametrize(
    ("image_size", "size", "channels", "num_classes"),
    [((32, 32), (32, 32), 3, 5), (None, (27, 38), 4, None)],
)
def test_every_layer_of_bit_equals_loops(rng, image_size, size, channels, num_classes):
    model = ResNet(image_size, (2, 1), 0.5, num_classes=num_classes, channels=channels)
    images = images_for(randomize(model, rng), rng, size)
    expected = resnet_reference.bit(images, weights_by_path(model), (2, 1))
    outputs = models.intermediates(model)(images)
    assert outputs.keys() == {*expected, "norm-pre-head"}
    for name, value in expected.items():
        assert_close(outputs[name], value, rtol=1e-5, name=name)


TINY = {"hidden_size": 12, "num_layers": 1, "num_heads": 1, "mlp_dim": 16}
BUILDS = {
    "VisionTransformer": lambda **options: VisionTransformer(8, 4, **TINY, **options),
    "HybridViT": lambda **options: HybridViT(32, (1,), 0.5, 2, **TINY, **options),
    "ResNet": lambda **options: ResNet(32, (1,), 0.5, **options),
}


@pytest.mark.on("torch")
@pytest.mark.parametrize("name", BUILDS)
def test_no_classes_are_the_features_that_the_classifier_reads(name, rng):
    whole = randomize(BUILDS[name](num_classes=3, seed=0), rng)
    images = images_for(whole, rng)
    features = keras.Model(whole.input, whole.get_layer("head").input)
    for num_classes in (None, 0):
        bare = BUILDS[name](num_classes=num_classes, seed=0)
        bare.set_weights(whole.get_weights()[:-2])
        np.testing.assert_array_equal(to_numpy(bare(images)), to_numpy(features(images)))


@pytest.mark.once
def test_stochastic_depth_grows_linearly():
    model = VisionTransformer(8, 4, 16, 3, 2, 32, num_classes=None, stochastic_depth_rate=0.4)
    rates = [model.get_layer(f"encoderblock_{i}").stochastic_depth_rate for i in range(3)]
    assert rates == pytest.approx([0.0, 0.2, 0.4])


@pytest.mark.on("torch")
@pytest.mark.parametrize("variant", ["Ti/16", "R26+S/32", "R50x1"])
def test_a_configuration_chooses_the_arguments_that_its_variant_has(variant):
    sizes, own = {"image_size": 32, "head_bias": -6.5}, {}
    if variant != "R50x1":
        sizes |= {"num_layers": 3, "num_heads": 2}
        own = {"rematerialize": True, "position_embedding": "sincos2d"}
    if variant == "Ti/16":
        own["options"] = {"window_size": [1, 2], "global_blocks": [1]}  # as YAML has them
    model = from_model_config(ModelConfig(variant, **sizes, **own), num_classes=3)
    kernel, bias = model.get_layer("head").get_weights()
    np.testing.assert_array_equal(bias, [-6.5] * 3)
    assert not kernel.any()
    if own:
        blocks = [layer for layer in model.layers if isinstance(layer, EncoderBlock)]
        assert all(block.rematerialize for block in blocks)
        sizes = [(1, 2), None, (1, 2)] if "options" in own else [None] * 3
        assert [block.options.window_size for block in blocks] == sizes
        assert positions_of(model) == ("sincos2d", "stem")
    names = {"rematerialize": True, "position_embedding": "sincos2d"}
    with pytest.raises(ValueError, match=r"no model\.position_embedding, model\.rematerialize"):
        ModelConfig("R50x1", **names).arguments()


def test_mixed_precision_ends_in_float32():
    model = VisionTransformer(16, 4, **SMALL, dtype="mixed_bfloat16")
    assert model.get_layer("encoderblock_0").compute_dtype == "bfloat16"
    assert {keras.backend.standardize_dtype(w.dtype) for w in model.weights} == {"float32"}
    assert keras.backend.standardize_dtype(model(np.zeros((1, 16, 16, 3))).dtype) == "float32"
