"""Models made from DeiT's with its teacher's token (arXiv 2012.12877)."""

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras import evaluation, exporting, weights
from vit_keras.exporting.inference_model import for_inference
from vit_keras.models import VisionTransformer, attention_maps, scale_head, with_image_size

pytestmark = pytest.mark.on("torch")

SIZES = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 40, "num_classes": 5}


def distilled(rng, image_size=(16, 24), **changes):
    arguments = {**SIZES, "classifier": "distilled", **changes}
    return randomize(VisionTransformer(image_size, 8, **arguments), rng, scale=0.2)


@pytest.fixture
def images(rng):
    return rng.normal(size=(2, 16, 24, 3)).astype("float32")


@pytest.mark.parametrize("positions", ["learned", "rope2d"])
def test_another_size_keeps_the_tokens_before_the_patches(rng, images, positions):
    model = distilled(rng, position_embedding=positions)
    larger = with_image_size(model, (32, 40))
    assert attention_maps(larger).output_shape == (None, 2, 3, 22, 22)
    ours, theirs = weights_by_path(model), weights_by_path(larger)
    for name in ("cls/cls", "dist/cls", "head/kernel", "head_dist/kernel"):
        np.testing.assert_array_equal(ours[name], theirs[name])
    if positions == "learned":
        path = "posembed_input/pos_embedding"
        np.testing.assert_array_equal(ours[path][:, :2], theirs[path][:, :2])
    assert_close(with_image_size(model, (16, 24))(images), model(images))


def test_features_are_served_and_attention_is_of_the_patches(rng, images):
    model = distilled(rng)
    _, rollout = for_inference(model, with_attention=True)(images)
    assert rollout.shape == (2, 2, 3)
    served = exporting.serving.serving_model(model, "features", raw=True)
    expected = to_numpy(evaluation.feature_model(model)(images))
    assert_close(served(images), expected, rtol=2e-6)


def test_its_file_holds_both_heads_which_are_dropped_and_scaled_together(rng, images, tmp_path):
    model, path = distilled(rng), tmp_path / "model.keras"
    model.save(path)
    assert weights.describe(path)["architecture"]["classifier"] == "distilled"
    logits = to_numpy(model(images))
    assert_close(vit_keras.open(path)(images), logits, rtol=2e-6)
    other = VisionTransformer((32, 24), 8, **{**SIZES, "num_classes": 7}, classifier="distilled")
    weights.load(other, path, head="drop")
    assert not to_numpy(other.get_layer("head_dist").kernel).any()
    scaled = scale_head(model, [1, 2, 3, 4, 5], -0.5)
    assert_close(scaled(images), logits * [1, 2, 3, 4, 5] - 0.5)
