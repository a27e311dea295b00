"""Constructors build features alike."""

import keras
import numpy as np
import pytest

from tests.helpers import randomize, to_numpy
from vit_keras.models import HybridViT, ResNet, VisionTransformer

pytestmark = pytest.mark.on("torch")

SIZES = {"hidden_size": 12, "num_layers": 1, "num_heads": 1, "mlp_dim": 16}
BUILDS = {
    "VisionTransformer": lambda **options: VisionTransformer(8, 4, **SIZES, **options),
    "HybridViT": lambda **options: HybridViT(32, (1,), 0.5, 2, **SIZES, **options),
    "ResNet": lambda **options: ResNet(32, (1,), 0.5, **options),
}


@pytest.mark.parametrize("name", BUILDS)
def test_no_classes_are_the_features_that_the_classifier_reads(name, rng):
    whole = randomize(BUILDS[name](num_classes=3, seed=0), rng)
    images = rng.normal(size=(2, *whole.input_shape[1:])).astype("float32")
    features = keras.Model(whole.input, whole.get_layer("head").input)
    for num_classes in (None, 0):
        bare = BUILDS[name](num_classes=num_classes, seed=0)
        bare.set_weights(whole.get_weights()[:-2])
        np.testing.assert_array_equal(to_numpy(bare(images)), to_numpy(features(images)))
