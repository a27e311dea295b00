"""Models built from files: missing arguments are named, and weights adapt to overrides."""

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, to_numpy, weights_by_path
from tests.weights.builds import build
from vit_keras import weights
from vit_keras.models import with_image_size
from vit_keras.support.resizing import resize_position_embeddings

pytestmark = [pytest.mark.on("torch"), pytest.mark.filterwarnings("ignore:.*computes with")]


def test_weights_h5_does_not_say_how_its_model_computes(rng, tmp_path):
    source, path = build(rng, gelu="tanh", classifier="gap"), tmp_path / "own.weights.h5"
    weights.save(source, path)
    with pytest.raises(ValueError, match="do not say `classifier` and `image_size` and `gelu`"):
        vit_keras.open(path)
    said = {"classifier": "gap", "image_size": (16, 24), "gelu": "tanh"}
    opened = vit_keras.open(path, **said)
    images = rng.uniform(-1, 1, (2, 16, 24, 3)).astype("float32")
    assert_close(opened(images), source(images), rtol=2e-6)


def test_from_checkpoint_adapts_what_is_overridden(rng, tmp_path):
    source, path = build(rng, image_size=(16, 16)), tmp_path / "a.npz"
    weights.save(source, path, format="google")
    larger = vit_keras.open(path, image_size=(32, 24))
    by_hand = with_image_size(source, (32, 24))
    for name, value in weights_by_path(by_hand).items():
        assert_close(weights_by_path(larger)[name], value, rtol=1e-6, name=name)
    gray = vit_keras.open(path, channels=1, gelu="exact")
    image = rng.uniform(-1, 1, (2, 16, 16, 1)).astype("float32")
    expected = to_numpy(source(np.repeat(image, 3, axis=-1)))
    assert_close(gray(image), expected)


def test_positions_are_resized_by_the_rule_of_the_source_or_another(rng, tmp_path):
    source = build(rng, image_size=(32, 32))
    weights.save(source, tmp_path / "a.safetensors", format="timm")
    before = weights_by_path(source)["posembed_input/pos_embedding"]
    for interpolation in (None, "bilinear"):
        model = build(image_size=(24, 40))
        weights.load(model, tmp_path / "a.safetensors", interpolation=interpolation)
        rule = interpolation or "bicubic_antialias"
        expected = resize_position_embeddings(before, (4, 4), (3, 5), rule)
        after = weights_by_path(model)["posembed_input/pos_embedding"]
        assert_close(after, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="`interpolation` must be one of 'bilinear'"):
        weights.load(model, tmp_path / "a.safetensors", interpolation="nearest")
