"""Classifiers from embeddings of texts; `tests/weights/test_text_embeddings.py` has the numbers."""

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, randomize, to_numpy
from vit_keras.models import VisionTransformer, head_from_text, task_of
from vit_keras.weights import save, save_model

pytestmark = pytest.mark.on("torch")


def build(rng, **design):
    """A SigLIP's image tower."""
    sizes = (16, 8, 24, 2, 3, 40, None)
    model = randomize(VisionTransformer(*sizes, classifier="map", **design), rng)
    model.preprocessing = model.preprocessing.__class__(mean=(0.25,))
    return model


def test_logits_are_scaled_cosines_in_files_of_keras_alone(rng, tmp_path):
    tower, texts = build(rng), rng.normal(size=(4, 24))
    images = rng.normal(size=(3, 16, 16, 3)).astype("float32")
    unit = lambda z: z / np.linalg.norm(z, axis=1, keepdims=True)
    expected = 7.5 * unit(to_numpy(tower(images)).astype("float64")) @ unit(texts).T - 1.5
    labels = ["cat", "dog", "owl", "bee"]
    model = head_from_text(tower, texts, 7.5, -1.5, labels, "sigmoid")
    save_model(model, tmp_path / "model.keras")
    again = vit_keras.open(tmp_path / "model.keras")
    for one in (model, again):
        assert_close(one(images), expected, rtol=2e-6)
    assert again.class_names == labels and again.preprocessing.mean == (0.25,)
    assert task_of(again).row.output == "sigmoid"
    with pytest.raises(ValueError, match="whose 'head' reads 'unit_length'"):
        save(model, tmp_path / "timm.safetensors", format="timm")


def test_the_head_computes_in_float32_beside_a_tower_of_bfloat16(rng):
    model = head_from_text(build(rng, dtype="mixed_bfloat16"), np.eye(24), 1.0)
    assert model.get_layer("head").compute_dtype == "float32"
    assert model.get_layer("unit_length").compute_dtype == "float32"
