"""Whole models in Keras' old `.h5` files, as keras.applications' models are saved in them."""

import keras
import numpy as np
import pytest

from tests.helpers import randomize
from vit_keras.models import HybridViT, Preprocessing, ResNet, VisionTransformer

pytestmark = pytest.mark.on("torch")

SIZES = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24, "num_classes": 5}
MODELS = {
    "ViT": lambda: VisionTransformer(16, 4, **SIZES, classifier="map", num_registers=2),
    "relative": lambda: VisionTransformer(16, 4, **SIZES, position_embedding="relative_2d"),
    "hybrid": lambda: HybridViT(32, (1, 1), 0.5, 1, **SIZES),
    "ResNet": lambda: ResNet(32, (1, 1), 0.5, 5),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_opens_without_custom_objects(rng, tmp_path, name):
    model = randomize(MODELS[name](), rng)
    model.preprocessing = Preprocessing(mean=(0.1, 0.2, 0.3), antialias=True)
    model.class_names = list("abcde")
    model.save(tmp_path / "m.h5")
    opened = keras.models.load_model(tmp_path / "m.h5")
    images = rng.normal(size=(2, *model.input_shape[1:])).astype("float32")
    expected = model.predict_on_batch(images)
    assert np.abs(expected).max() > 0.05
    np.testing.assert_array_equal(opened.predict_on_batch(images), expected)
    assert (opened.preprocessing, opened.class_names) == (model.preprocessing, list("abcde"))
