"""The classifier "distilled" is DeiT's with its teacher's token (arXiv 2012.12877)."""

import numpy as np
import pytest

from tests.helpers import assert_close, randomize, shapes_only, to_numpy
from tests.peers import peer
from vit_keras import evaluation, exporting, weights
from vit_keras.exporting.inference_model import for_inference
from vit_keras.models import VisionTransformer

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


def test_counts_are_the_published():
    counts = {192: (3, 5_910_800), 384: (6, 22_436_432)}
    for width, (heads, count) in counts.items():
        sizes = {"hidden_size": width, "num_heads": heads, "mlp_dim": 4 * width}
        sizes |= {"num_layers": 12, "num_classes": 1000}
        with shapes_only():
            assert distilled(image_size=224, patch_size=16, **sizes).count_params() == count


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
