"""Classifiers from embeddings of texts, against the formula in NumPy."""

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, randomize, to_numpy
from vit_keras import inspection
from vit_keras.models import VisionTransformer, head_from_text, task_of
from vit_keras.weights import save, save_model

pytestmark = pytest.mark.on("torch")

CLIP = {"num_classes": 8, "head_use_bias": False, "pre_norm": True}
SIGLIP = {"num_classes": None, "classifier": "map"}


def build(rng, **design):
    model = randomize(VisionTransformer(16, 8, 24, 2, 3, 40, **design), rng)
    model.preprocessing = model.preprocessing.__class__(mean=(0.25,))
    return model


def cosines(x, y):
    unit = lambda z: z / np.linalg.norm(z, axis=1, keepdims=True)
    return unit(x.astype("float64")) @ unit(y).T


@pytest.mark.parametrize(("design", "activation"), [(CLIP, "softmax"), (SIGLIP, "sigmoid")])
def test_logits_are_scaled_cosines(rng, tmp_path, design, activation):
    tower = build(rng, **design)
    images = rng.normal(size=(3, 16, 16, 3)).astype("float32")
    texts = rng.normal(size=(4, tower.output_shape[-1]))
    expected = 7.5 * cosines(to_numpy(tower(images)), texts) - 1.5
    labels = ["cat", "dog", "owl", "bee"]
    model = head_from_text(tower, texts, 7.5, -1.5, labels, activation)
    assert_close(model(images), expected, rtol=2e-6)
    save_model(model, tmp_path / "model.keras")
    again = vit_keras.open(tmp_path / "model.keras")
    assert_close(again(images), expected, rtol=2e-6)
    assert again.class_names == labels and again.preprocessing.mean == (0.25,)
    assert task_of(again).row.output == activation


def test_no_other_format_drops_the_cosines(rng, tmp_path):
    model = head_from_text(build(rng, **SIGLIP), np.eye(24), 1.0)
    with pytest.raises(ValueError, match="timm files have no place for unit_length of model"):
        save(model, tmp_path / "timm.safetensors", format="timm")
    assert not [*tmp_path.iterdir()]


def test_projection_and_head_cost_their_products(rng):
    tower = build(rng, **CLIP)
    model = head_from_text(tower, rng.normal(size=(4, 8)), 1.0)
    count = lambda m: inspection.flops(m).macs
    assert count(model) - count(tower) == 8 * 4


def test_the_head_computes_in_float32_beside_a_tower_of_bfloat16(rng):
    model = head_from_text(build(rng, **SIGLIP, dtype="mixed_bfloat16"), np.eye(24), 1.0)
    assert model.get_layer("head").compute_dtype == "float32"
    assert model.get_layer("unit_length").compute_dtype == "float32"
