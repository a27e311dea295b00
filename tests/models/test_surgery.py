"""Models made from a model equal Eq. 1-4 and the published resize."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras.inspection import feature_components, position_similarity, views_of
from vit_keras.models import (
    ImageModel,
    Preprocessing,
    VisionTransformer,
    attention_maps,
    intermediates,
    patch_grid,
    with_image_size,
)
from vit_keras.support.resizing import resize_position_embeddings

pytestmark = pytest.mark.on("torch")


@pytest.fixture(scope="module")
def small():
    """Returns a randomized model for 12x8 images, two images, and the results of Eq. 1-4."""
    rng = np.random.default_rng(7)
    model = VisionTransformer((12, 8), 4, 24, 3, 3, 40, num_classes=5, name="small")
    randomize(model, rng, scale=0.15)
    images = rng.uniform(-1, 1, (2, 12, 8, 3)).astype("float32")
    return model, images, reference.forward(images, weights_by_path(model), num_layers=3)


def test_every_intermediate_is_found_by_its_published_name(small):
    model, images, expected = small
    outputs = intermediates(model).predict(images, verbose=0)
    for name in ("posembed_input", "encoderblock_0", "encoderblock_2", "encoder_norm"):
        assert_close(outputs[name], expected[name], name=name)
    assert_close(outputs["head"], expected["logits"])


def test_attention_maps_hold_every_layer_and_head_and_leave_the_model_as_it_was(small, tmp_path):
    model, images, expected = small
    maps = attention_maps(model).predict(images, verbose=0)
    assert maps.shape == (2, 3, 3, 7, 7)  # images, layers, heads, tokens, tokens
    assert_close(maps, expected["attention"])
    attention_maps(model).save(tmp_path / "attention.keras")
    again = keras.saving.load_model(tmp_path / "attention.keras")
    assert_close(again.predict(images, verbose=0), expected["attention"])
    assert_close(model(images), expected["logits"])


def test_another_image_size_keeps_the_weights(small, rng):
    model, _, _ = small
    resized = with_image_size(model, (16, 24))
    weights = weights_by_path(model)
    old = weights["posembed_input/pos_embedding"]
    new = resize_position_embeddings(old, (3, 2), (4, 6))
    images = rng.uniform(-1, 1, (2, 16, 24, 3)).astype("float32")
    weights["posembed_input/pos_embedding"] = new
    expected = reference.forward(images, weights, num_layers=3)["logits"]
    assert_close(resized(images), expected)
    assert patch_grid(model) == (3, 2) and patch_grid(resized) == (4, 6)
    resized.get_layer("head").bias.assign_add(np.ones(5))  # nothing is shared
    np.testing.assert_array_equal(weights_by_path(model)["head/bias"], weights["head/bias"])


def test_saved_files_carry_preprocessing_and_class_names(tmp_path):
    model = VisionTransformer(8, 4, 24, 1, 3, 40, num_classes=2)
    model.class_names = ("cat", "dog")
    model.preprocessing = Preprocessing(mean=(0.4, 0.5, 0.6), interpolation="bicubic")
    with_image_size(model, 16).save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(again, ImageModel)
    assert list(again.class_names) == ["cat", "dog"]
    assert again.preprocessing == model.preprocessing


def inside(base, *before):
    """The models that people put around a backbone."""
    images = keras.Input(base.input_shape[1:])
    head = keras.layers.Dense(4, name="new_head")
    x = images
    for layer in before:
        x = layer(x)
    yield keras.Model(images, head(base(x)), name="around")
    yield keras.Sequential([*before, base, keras.layers.Dense(4)], name="in_a_row")


def test_a_model_around_a_backbone_shows_the_backbone(rng):
    base = randomize(VisionTransformer(16, 8, 12, 2, 3, 20, None), rng)
    images = rng.normal(size=(2, 16, 16, 3)).astype("float32")
    expected = to_numpy(attention_maps(base)(images))
    components = feature_components(base, images)
    for model in inside(base):
        outer = keras.Sequential([model, keras.layers.ReLU()])
        for nested in (model, outer):
            assert_close(to_numpy(attention_maps(nested)(images)), expected, rtol=1e-6)
            last = intermediates(nested)(images)[base.layers[-1].name]
            assert_close(to_numpy(last), to_numpy(base(images)), rtol=1e-6)
            for name, values in feature_components(nested, images).items():
                assert_close(values, components[name], rtol=1e-4)
            np.testing.assert_array_equal(position_similarity(nested), position_similarity(base))
            assert views_of(nested) == views_of(base)


def test_a_backbone_that_does_not_read_the_images_is_named():
    base = VisionTransformer(16, 8, 12, 1, 3, 20, None, name="base")
    for model in inside(base, keras.layers.Rescaling(2.0)):
        with pytest.raises(ValueError, match=r'come before it.*model.get_layer\("base"\)'):
            intermediates(model)
    for model in inside(base):
        with pytest.raises(
            ValueError, match=r'Only the backbone itself.*model.get_layer\("base"\)'
        ):
            with_image_size(model, 32)
    images = keras.Input((16, 16, 3))
    other = VisionTransformer(16, 8, 12, 1, 3, 20, None, name="other")
    both = keras.Model(images, keras.layers.Concatenate()([base(images), other(images)]))
    with pytest.raises(ValueError, match=r'several.*get_layer\("base"\).*get_layer\("other"\)'):
        attention_maps(both)
