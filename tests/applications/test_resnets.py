"""The hybrids and BiT as Keras applications."""

import keras
import numpy as np
import pytest

from tests import resnet_reference as reference
from tests.helpers import assert_close, randomize, shapes_only, to_numpy, weights_by_path
from vit_keras import applications, variants
from vit_keras.models import from_variant

pytestmark = pytest.mark.on("torch")

NAMES = {
    "RViTTi16": "R+Ti/16",
    "R26ViTS32": "R26+S/32",
    "R26ViTB32": "R26+B/32",
    "R50ViTB16": "R50+B/16",
    "R50ViTB32": "R50+B/32",
    "R50ViTL16": "R50+L/16",
    "R50ViTL32": "R50+L/32",
    **{f"BiT{variant}": variant for variant in variants.RESNETS},
}


FIRST = ("RViTTi16", "R26ViTS32", "BiTR50x1", "BiTR152x4")


@pytest.mark.parametrize(
    "name", [n if n in FIRST else pytest.param(n, marks=pytest.mark.nightly) for n in NAMES]
)
def test_each_name_builds_its_variant(name):
    with shapes_only():
        model = getattr(applications, name)(classes=7)
        expected = from_variant(NAMES[name], image_size=224, num_classes=7)
        shapes = {weight.path: weight.shape for weight in model.weights}
        assert shapes == {weight.path: weight.shape for weight in expected.weights}
        assert model.get_layer("head").activation is keras.activations.softmax
    assert name in applications.__all__ and NAMES[name] in getattr(applications, name).__doc__


@pytest.fixture
def small(monkeypatch):
    """R50x1 with two units of half the width."""
    monkeypatch.setitem(variants.VARIANTS, "R50x1", variants.ResNetVariant((1, 1), 0.5))
    return applications.BiTR50x1


@pytest.mark.parametrize("pooling", [None, "avg", "max"])
def test_bit_without_top_gives_its_normalized_map(rng, small, pooling):
    model = randomize(small(include_top=False, input_shape=(20, 33, 4), pooling=pooling), rng)
    images = rng.uniform(-1, 1, (2, 20, 33, 4)).astype("float32")
    expected = reference.bit(images, weights_by_path(model), (1, 1))["relu"]  # (B, h, w, C)
    if pooling is not None:
        expected = {"avg": np.mean, "max": np.max}[pooling](expected, axis=(1, 2))
    assert_close(model(images), expected)


def test_hybrid_without_top_gives_its_normalized_tokens(rng, monkeypatch):
    row = variants.HybridVariant(1, 24, 1, 3, 40, resnet_layers=(1,), resnet_width=0.5)
    monkeypatch.setitem(variants.VARIANTS, "R50+B/16", row)
    build = applications.R50ViTB16
    whole = randomize(build(input_shape=(8, 12, 3), include_top=False), rng, scale=0.15)
    pooled = build(input_shape=(8, 12, 3), include_top=False, pooling="max")
    pooled.set_weights(whole.get_weights())
    images = rng.uniform(-1, 1, (2, 8, 12, 3)).astype("float32")
    tokens = to_numpy(whole(images))
    assert tokens.shape == (2, 1 + 2 * 3, 24)
    assert_close(pooled(images), tokens[:, 1:].max(axis=1), rtol=2e-6)
