"""Models equal Eq. 1-4, BiT's loops and each placement of positions in NumPy."""

import keras
import numpy as np
import pytest

import vit_keras
from tests import reference, resnet_reference
from tests.helpers import assert_close, randomize, spread, to_numpy, weights_by_path
from vit_keras import models, weights
from vit_keras.config import ModelConfig
from vit_keras.layers import EncoderBlock
from vit_keras.models import HybridViT, ResNet, VisionTransformer, from_model_config, positions_of
from vit_keras.support.interpolation import resize_position_embeddings

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


@pytest.mark.once
def test_patches_are_averaged_also_where_keras_puts_channels_first(request):
    request.addfinalizer(lambda: keras.config.set_image_data_format("channels_last"))
    keras.config.set_image_data_format("channels_first")
    model = VisionTransformer(16, 4, **SMALL, classifier="gap")
    assert model.get_layer("gap").output.shape == (None, 24)


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


GRID = (3, 2)  # of 12x8 images in patches of 4
CASES = [
    ("none", "stem", "gap"),
    ("learned", "every", "token"),
    ("learned", "shared", "gap"),
    ("learned_2d", "stem", "token"),
    ("learned_2d", "every", "gap"),
    ("sincos2d", "stem", "token"),
    ("relative", "stem", "map"),
    ("rope2d", "stem", "token"),
]
every_case = pytest.mark.parametrize("case", CASES, ids="-".join)


def build(rng, kind, place, classifier, image_size=(12, 8), **changes):
    chosen = {"position_embedding": kind, "position_embedding_at": place, "classifier": classifier}
    model = VisionTransformer(image_size, 4, **{**SMALL, **chosen, **changes}, name="placed")
    return randomize(model, rng, scale=0.15)


def tables(arrays, kind, place, classifier, grid=GRID):
    """Returns what is added before each block, by the block's number, from Appendix D.4."""
    token = classifier == "token"
    names = {
        "stem": {0: "posembed_input"},
        "every": {0: "posembed_0", 1: "posembed_1"},
        "shared": {0: "posembed_shared", 1: "posembed_shared"},
    }[place]
    if kind == "learned":
        return {i: arrays[f"{name}/pos_embedding"] for i, name in names.items()}
    if kind == "learned_2d":
        parts = ("x_embedding", "y_embedding", "cls_embedding")[: 2 + token]
        return {
            i: reference.columns_and_rows(grid, *(arrays[f"{name}/{part}"] for part in parts))
            for i, name in names.items()
        }
    return dict.fromkeys(names, reference.sincos(grid, 24, token)) if kind == "sincos2d" else {}


def expected_of(model, images, kind, place, classifier, grid=GRID):
    arrays = {name: value.astype("float64") for name, value in weights_by_path(model).items()}
    turn = lambda x: reference.rotary(x, grid, classifier == "token")
    return reference.forward(
        images,
        arrays,
        num_layers=2,
        classifier=classifier,
        added=tables(arrays, kind, place, classifier, grid),
        **({"turn": turn} if kind == "rope2d" else {}),
    )


@pytest.mark.on("torch")
@every_case
def test_logits_and_attention_equal_the_formulas(rng, case):
    model = build(rng, *case)
    images = images_for(model, rng)
    expected = expected_of(model, images, *case)
    assert_close(model(images), expected["logits"])
    maps = to_numpy(models.attention_maps(model)(images))
    assert_close(maps, expected["attention"])
    assert positions_of(model) == case[:2]


@pytest.mark.on("torch")
def test_a_file_of_weights_alone_does_not_state_positions(rng, tmp_path):
    weights.save(build(rng, "learned_2d", "every", "gap"), tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match=r"does not state which position embeddings"):
        vit_keras.open(tmp_path / "model.weights.h5")


@pytest.mark.on("torch")
@pytest.mark.parametrize("case", [CASES[i] for i in (1, 2, 4, 5, 7)], ids="-".join)
def test_another_image_size_moves_positions_with_the_grid(rng, case):
    model = build(rng, *case)
    images = images_for(model, rng, (16, 20))
    resized = models.with_image_size(model, (16, 20))
    old, new = (
        tables(weights_by_path(m), *case, grid) for m, grid in ((model, GRID), (resized, (4, 5)))
    )
    for i in old if case[0] != "sincos2d" else ():  # each axis by itself is both at once
        whole = old[i].reshape(1, -1, 24)
        whole = resize_position_embeddings(whole, GRID, (4, 5))
        assert_close(new[i].reshape(whole.shape), whole, rtol=2e-6)
    expected = expected_of(resized, images, *case, grid=(4, 5))["logits"]
    assert_close(resized(images), expected)
    kept = weights_by_path(resized)
    for name, value in weights_by_path(model).items():
        if not name.startswith("posembed") or "cls_embedding" in name:
            np.testing.assert_array_equal(kept[name], value, err_msg=name)
