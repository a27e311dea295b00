"""The classifier "distilled" is DeiT's with its teacher's token (arXiv 2012.12877)."""

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from tests.peers import peer
from vit_keras import evaluation, exporting, weights
from vit_keras.exporting.inference_model import for_inference
from vit_keras.models import VisionTransformer, attention_maps, scale_head, with_image_size

pytestmark = pytest.mark.on("torch")

SIZES = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 40, "num_classes": 5}


def distilled(rng=None, image_size=(16, 24), patch_size=8, **changes):
    model = VisionTransformer(
        image_size, patch_size, **{**SIZES, "classifier": "distilled", **changes}
    )
    return model if rng is None else randomize(model, rng, scale=0.2)


def deit(model, folder):
    """transformers' DeiT with the weights of `model`, and a function from images to its output."""
    torch = pytest.importorskip("torch")
    transformers = peer("transformers")
    weights.save(model, folder / "deit", format="huggingface")
    theirs = transformers.DeiTForImageClassificationWithTeacher.from_pretrained(
        folder / "deit"
    ).eval()

    def call(images):
        with torch.no_grad():
            return theirs(torch.tensor(images.transpose(0, 3, 1, 2)))

    return call


def test_logits_equal_those_of_transformers(rng, tmp_path):
    model = distilled(rng, 16)
    images = rng.normal(size=(3, 16, 16, 3)).astype("float32")
    theirs = deit(model, tmp_path)(images)
    assert_close(model(images), theirs.logits.numpy())
    head = evaluation.feature_model(model)(images) @ model.get_layer("head").kernel
    head = to_numpy(head) + to_numpy(model.get_layer("head").bias)
    assert_close(head, theirs.cls_logits.numpy())
    assert not np.allclose(theirs.cls_logits.numpy(), theirs.distillation_logits.numpy(), atol=0.1)


@pytest.mark.parametrize("positions", ["learned", "learned_2d", "sincos2d", "rope2d"])
def test_another_size_keeps_the_tokens_before_the_patches(rng, positions):
    model = distilled(rng, position_embedding=positions)
    larger = with_image_size(model, (32, 40))
    assert attention_maps(larger).output_shape == (None, 2, 3, 22, 22)
    ours, theirs = weights_by_path(model), weights_by_path(larger)
    for name in ("cls/cls", "dist/cls", "head/kernel", "head_dist/kernel"):
        np.testing.assert_array_equal(ours[name], theirs[name])
    if positions == "learned":
        path = "posembed_input/pos_embedding"
        np.testing.assert_array_equal(ours[path][:, :2], theirs[path][:, :2])
    images = rng.normal(size=(2, 16, 24, 3)).astype("float32")
    back = with_image_size(model, (16, 24))
    assert_close(back(images), model(images))


def test_rewritten_for_inference_it_gives_the_same_logits(rng):
    model = distilled(rng)
    images = rng.normal(size=(2, 16, 24, 3)).astype("float32")
    faster = for_inference(model)
    assert_close(faster(images), model(images))
    _, rollout = for_inference(model, with_attention=True)(images)
    assert rollout.shape == (2, 2, 3)
    features = distilled(rng, num_classes=None)
    faster = to_numpy(for_inference(features)(images))
    assert_close(faster, features(images))
    served = exporting.serving.serving_model(model, "features", raw=True)
    expected = to_numpy(evaluation.feature_model(model)(images))
    assert_close(served(images), expected, rtol=2e-6)


def test_its_file_holds_both_heads_and_brings_its_classifier(rng, tmp_path):
    model, path = distilled(rng, position_embedding="learned"), tmp_path / "model.keras"
    model.save(path)
    assert weights.describe(path)["architecture"]["classifier"] == "distilled"
    images = rng.normal(size=(2, 16, 24, 3)).astype("float32")
    again = vit_keras.open(path)
    assert_close(again(images), model(images), rtol=2e-6)
    resized = weights.load(distilled(image_size=(32, 24), num_classes=7), path, head="drop")
    assert not to_numpy(resized.get_layer("head_dist").kernel).any()
    expected = weights_by_path(with_image_size(model, (32, 24)))
    for name, value in weights_by_path(resized).items():
        if not name.startswith("head"):
            assert_close(value, expected[name], rtol=1e-6, name=name)


@pytest.mark.parametrize("source", ["google", "big_vision", "torchvision"])
def test_other_formats_refuse_its_second_token(tmp_path, source):
    suffix = {"google": "npz", "big_vision": "npz", "torchvision": "pth"}.get(source, "safetensors")
    path = tmp_path / f"model.{suffix}"
    with pytest.raises(ValueError, match="no place for a model with classifier='distilled'"):
        weights.save(distilled(), path, source)
    assert not path.exists()


def test_scales_are_folded_into_both_heads(rng):
    model = distilled(rng)
    images = rng.normal(size=(2, 16, 24, 3)).astype("float32")
    expected = to_numpy(model(images)) * [1, 2, 3, 4, 5] - 0.5
    scaled = scale_head(model, [1, 2, 3, 4, 5], -0.5)
    assert_close(scaled(images), expected)
