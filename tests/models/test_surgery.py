"""Models made from a model, its copies for other sizes, and its parts equal the formulas."""

import keras
import numpy as np
import pytest

import vit_keras
from tests import reference
from tests.designs import random_design
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras import exporting, inspection, models, weights
from vit_keras.inspection import feature_components, position_similarity, views_of
from vit_keras.support import interpolation as resizing
from vit_keras.support.preprocessing import Resizing
from vit_keras.training.optimizers import freeze

pytestmark = pytest.mark.on("torch")
SIZES = {"hidden_size": 24, "num_layers": 3, "num_heads": 3, "mlp_dim": 40, "num_classes": 5}
POSITIONS, KERNEL = "posembed_input/pos_embedding", "embedding/kernel"
FLEXIVIT = Resizing("bilinear_antialias", "bilinear_half_pixel")


@pytest.fixture(scope="module")
def small():
    """Returns a randomized model for 16x8 images, two images, and the results of Eq. 1-4."""
    rng = np.random.default_rng(7)
    model = randomize(models.VisionTransformer((16, 8), 4, **SIZES, name="small"), rng, scale=0.15)
    images = rng.uniform(-1, 1, (2, 16, 8, 3)).astype("float32")
    return model, images, reference.forward(images, weights_by_path(model), num_layers=3)


def test_attention_maps_hold_every_layer_and_head_and_leave_the_model_as_it_was(small, tmp_path):
    model, images, expected = small
    maps = models.attention_maps(model).predict(images, verbose=0)
    assert maps.shape == (2, 3, 3, 9, 9)  # images, layers, heads, tokens, tokens
    assert_close(maps, expected["attention"])
    models.attention_maps(model).save(tmp_path / "attention.keras")
    again = keras.saving.load_model(tmp_path / "attention.keras")
    assert_close(again.predict(images, verbose=0), expected["attention"])
    assert_close(model(images), expected["logits"])


def pseudo_inverse(kernel, new, rule):
    """pinv(Bᵀ) w, for B the matrix that resizes whole patches."""
    old = kernel.shape[:2]
    matrix = np.kron(*(resizing.INTERPOLATIONS[rule](a, b) for a, b in zip(old, new)))
    resized = np.linalg.pinv(matrix.T) @ kernel.reshape(old[0] * old[1], -1).astype("float64")
    return resized.reshape(*new, *kernel.shape[2:]).astype("float32")


@pytest.mark.parametrize("rules", [FLEXIVIT, Resizing("bicubic", "bicubic_antialias")])
def test_another_patch_size_resizes_the_kernel_and_the_positions(small, rules):
    model, images, _ = small
    resized = models.with_patch_size(model, (8, 2), rules.positions, rules.patches)
    weights = weights_by_path(model)
    weights[KERNEL] = pseudo_inverse(weights[KERNEL], (8, 2), rules.patches)
    new = resizing.resize_position_embeddings(weights[POSITIONS], (4, 2), (2, 4), rules.positions)
    expected = reference.forward(images, {**weights, POSITIONS: new}, num_layers=3)["logits"]
    assert_close(resized(images), expected)
    assert models.patch_grid(model) == (4, 2) and models.patch_grid(resized) == (2, 4)
    before = weights["head/bias"]
    resized.get_layer("head").bias.assign_add(np.ones(5))  # nothing is shared
    np.testing.assert_array_equal(weights_by_path(model)["head/bias"], before)


@pytest.mark.parametrize("rule", resizing.INTERPOLATIONS)
def test_another_image_size_resizes_positions_in_copies_and_in_the_graph(small, rng, rule):
    model, _, _ = small
    dynamic, weights = models.with_image_size(model, None, rule), weights_by_path(model)
    for rows, columns in [(4, 2), (2, 5), (6, 1)]:
        size, grid = (4 * rows, 4 * columns), (rows, columns)
        images = rng.uniform(-1, 1, (2, *size, 3)).astype("float32")
        new = resizing.resize_position_embeddings(weights[POSITIONS], (4, 2), grid, rule)
        expected = reference.forward(images, {**weights, POSITIONS: new}, num_layers=3)["logits"]
        assert_close(models.with_image_size(model, size, rule)(images), expected)
        assert_close(dynamic(images), expected, rtol=5e-6)
        cropped = np.pad(images, [(0, 0), (0, 3), (0, 2), (0, 0)], constant_values=1)
        assert_close(dynamic(cropped), expected, rtol=5e-6)


def test_relative_biases_are_resized_in_every_block(rng):
    model = models.VisionTransformer((16, 8), 4, **SIZES, position_embedding="relative_2d")
    before = weights_by_path(randomize(model, rng))
    for after in (
        models.with_image_size(model, (24, 8), "bicubic"),
        models.with_patch_size(model, 8, "bicubic"),
    ):
        grid = models.patch_grid(after)
        for path, value in weights_by_path(after).items():
            expected = before[path]
            if path.endswith("relative_2d/table"):
                expected = resizing.resize_relative_table(expected, (4, 2), grid, "bicubic")
            if path != KERNEL:
                assert_close(value, expected, rtol=1e-6, name=path)


def test_a_publisher_that_crops_takes_any_size(rng):
    model = randomize(models.VisionTransformer((16, 8), 4, **SIZES), rng)
    with pytest.raises(ValueError, match="`patch_size` must divide `image_size`"):
        models.with_image_size(model, (18, 15))
    model.resizing = Resizing(crops=True)
    images = rng.normal(size=(2, 18, 15, 3)).astype("float32")
    expected = models.with_image_size(model, (16, 12))(images[:, :16, :12])
    assert_close(models.with_image_size(model, (18, 15))(images), to_numpy(expected), rtol=2e-6)


def inside(base, *before):
    """The models that people put around a backbone."""
    images = keras.Input(base.input_shape[1:])
    in_a_row = keras.Sequential([images, *before, base, keras.layers.Dense(4)])
    return keras.Model(in_a_row.inputs, in_a_row.outputs), in_a_row


def test_a_model_around_a_backbone_shows_the_backbone(rng):
    base = randomize(models.VisionTransformer(16, 8, 12, 2, 3, 20, None), rng)
    images = rng.normal(size=(2, 16, 16, 3)).astype("float32")
    expected = to_numpy(models.attention_maps(base)(images))
    components = feature_components(base, images)
    for model in inside(base):
        outer = keras.Sequential([model, keras.layers.ReLU()])
        for nested in (model, outer):
            assert_close(to_numpy(models.attention_maps(nested)(images)), expected, rtol=1e-6)
            last = models.intermediates(nested)(images)[base.layers[-1].name]
            assert_close(to_numpy(last), to_numpy(base(images)), rtol=1e-6)
            for name, values in feature_components(nested, images).items():
                assert_close(values, components[name], rtol=1e-4)
            np.testing.assert_array_equal(position_similarity(nested), position_similarity(base))
            assert views_of(nested) == views_of(base)


def test_a_backbone_that_does_not_read_the_images_is_named():
    base = models.VisionTransformer(16, 8, 12, 1, 3, 20, None, name="base")
    for model in inside(base, keras.layers.Rescaling(2.0)):
        with pytest.raises(ValueError, match=r'come before it.*model.get_layer\("base"\)'):
            models.intermediates(model)
    for model in inside(base):
        with pytest.raises(ValueError, match=r'Only the backbone itself.*get_layer\("base"\)'):
            models.with_image_size(model, 32)
    images = keras.Input((16, 16, 3))
    other = models.VisionTransformer(16, 8, 12, 1, 3, 20, None, name="other")
    both = keras.Model(images, keras.layers.Concatenate()([base(images), other(images)]))
    with pytest.raises(ValueError, match=r'several.*get_layer\("base"\).*get_layer\("other"\)'):
        models.attention_maps(both)


def test_a_file_holds_two_heads_which_are_dropped_and_scaled_together(rng, tmp_path):
    sizes, path = {**SIZES, "classifier": "distilled"}, tmp_path / "model.keras"
    model = randomize(models.VisionTransformer((16, 24), 8, **sizes), rng, scale=0.2)
    images = rng.normal(size=(2, 16, 24, 3)).astype("float32")
    model.save(path)
    assert weights.describe(path)["architecture"]["classifier"] == "distilled"
    logits = to_numpy(model(images))
    assert_close(vit_keras.open(path)(images), logits, rtol=2e-6)
    other = models.VisionTransformer((32, 24), 8, **{**sizes, "num_classes": 7})
    weights.load(other, path, head="drop")
    assert not to_numpy(other.get_layer("head_dist").kernel).any()
    scaled = models.scale_head(model, [1, 2, 3, 4, 5], -0.5)
    assert_close(scaled(images), logits * [1, 2, 3, 4, 5] - 0.5)


CHAIN = (12, 4, 8, 2, 2, 16, 3)
BELOW = ("embedding", "posembed_input", "encoderblock_*")
FROZEN = {  # the arguments, the layers that are frozen, the shape of features, those that train
    "head": ({}, ["[!h]*"], (8,), ["head"]),
    "pre-logits": (
        {"classifier": "gap", "representation_size": 6},
        [*BELOW, "encoder_norm"],
        (8,),
        ["pre_logits", "head"],
    ),
    "pool": ({"classifier": "map"}, [*BELOW, "encoder_norm"], (9, 8), ["MAPHead_0", "head"]),
    "last block": (
        {"position_embedding_at": "every"},
        ["embedding", "cls", "posembed_*", "encoderblock_0", "encoder_norm"],
        (10, 8),
        ["encoderblock_1", "head"],
    ),
}


@pytest.mark.parametrize("case", FROZEN)
def test_features_and_head_give_the_logits_of_the_model(case, rng):
    arguments, patterns, shape, trained = FROZEN[case]
    model = randomize(models.VisionTransformer(*CHAIN, **arguments), rng)
    freeze(model, patterns)
    model.class_names = ["a", "b", "c"]
    backbone, head = models.split_frozen(model)
    images = rng.normal(size=(2, *model.input_shape[1:])).astype("float32")
    features = to_numpy(backbone(images))
    assert features.shape == (2, *shape)
    assert_close(head(features), model(images))
    names = {variable.path.split("/")[0] for variable in head.trainable_variables}
    assert names == set(trained) and head.class_names == ["a", "b", "c"]
    assert not backbone.trainable_variables
    # The head has copies of the weights, so that the model stays as it is.
    before = weights_by_path(model)
    randomize(head, rng)
    for name, value in weights_by_path(model).items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


def test_what_cannot_be_split_is_named():
    whole = models.VisionTransformer(*CHAIN)
    with pytest.raises(ValueError, match="must be frozen.*'embedding' is the first trainable"):
        models.split_frozen(whole)
    shared = models.VisionTransformer(*CHAIN, position_embedding_at="shared")
    freeze(shared, ["embedding", "cls", "encoderblock_*", "encoder_norm"])
    with pytest.raises(ValueError, match="must form a chain.*'posembed_shared' is"):
        models.split_frozen(shared)


def test_another_image_size_divides_its_own_grid(rng):
    """Fixed positions have no weights, so that both models have the same ones."""
    design = {"position_embedding": "sincos2d", "window_size": (2, 3), "global_blocks": (2,)}
    small, large = (
        randomize(models.VisionTransformer(size, 4, **SIZES, **design), np.random.default_rng(1))
        for size in ((12, 16), (20, 28))
    )
    resized = models.with_image_size(small, (20, 28))
    images = rng.normal(size=(2, 20, 28, 3)).astype("float32")
    assert_close(resized(images), large(images))
    assert resized.get_layer("encoderblock_0").attention.windows.counts == (3, 3)
    assert resized.get_layer("encoderblock_2").attention.windows is None


def test_what_needs_all_tokens_refuses_windows(tmp_path):
    model = random_design("ViTDet")
    message = "that attend to all tokens. Received: model .*encoderblock_0 attend within windows"
    with pytest.raises(ValueError, match=f"Attention weights need a .* {message}"):
        models.attention_maps(model)
    with pytest.raises(ValueError, match=f"Attention weights need a .* {message}"):
        exporting.for_inference(model, with_attention=True)
    with pytest.raises(ValueError, match="neither positions nor windows. Received"):
        exporting.for_inference(model, token_merging=1)
    views = "filters, position_similarity, features"
    assert inspection.views_of(model) == views.split(", ")
    with pytest.raises(ValueError, match=f"layers that attend to all tokens.*views {views}"):
        inspection.views_of(model, ["attention_rollout"])
