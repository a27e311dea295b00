"""KerasHub's tasks around our models, by KerasHub's own test helpers."""

import keras
import keras_hub
import numpy as np
import pytest
from keras_hub.src.tests import test_case

from tests.helpers import randomize
from vit_keras.models import VisionTransformer

SIZES = {"patch_size": 4, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24}
IMAGE_SIZE = (8, 12)


@keras.saving.register_keras_serializable(package="tests")
class OurBackbone(keras_hub.models.Backbone):
    """Our encoder as a backbone of KerasHub: all normalized tokens, `(B, 1 + N, D)`."""

    def __init__(self, num_layers=2, dtype=None, **kwargs):
        sizes = {**SIZES, "num_layers": num_layers}
        model = VisionTransformer(IMAGE_SIZE, num_classes=None, seed=0, dtype=dtype, **sizes)
        tokens = model.get_layer("encoder_norm").output
        super().__init__(inputs=model.input, outputs=tokens, dtype=dtype, **kwargs)
        self.num_layers = num_layers

    def get_config(self):
        return {**super().get_config(), "num_layers": self.num_layers}


def tokens_model(rng):
    """Our own model, whose outputs are the tokens that `ViTImageClassifier` reads."""
    model = VisionTransformer(IMAGE_SIZE, num_classes=None, seed=0, **SIZES)
    tokens = model.get_layer("encoder_norm").output
    return randomize(type(model)(model.input, tokens, name="ours"), rng)


@pytest.fixture
def harness():
    case = test_case.TestCase()
    case.setUp()
    yield case
    case.tearDown()
    case.doCleanups()


@pytest.fixture
def images(rng):
    return rng.uniform(-1, 1, (2, *IMAGE_SIZE, 3)).astype("float32")


@pytest.mark.nightly_on("jax", "tensorflow")
@pytest.mark.parametrize("pooling", ["token", "gap"])
def test_the_task_is_fit_predicts_and_is_serialized(harness, rng, pooling):
    scaling = {"scale": 1 / 127.5, "offset": -1.0}
    converter = keras_hub.layers.ViTImageConverter(image_size=IMAGE_SIZE, **scaling)
    made = keras_hub.models.ViTImageClassifierPreprocessor(converter)
    pictures = rng.uniform(0, 255, (2, *IMAGE_SIZE, 3)).astype("float32")
    harness.run_task_test(
        keras_hub.models.ViTImageClassifier,
        {"backbone": tokens_model(rng), "num_classes": 3, "preprocessor": made, "pooling": pooling},
        train_data=(pictures, np.array([0, 2])),
        expected_output_shape=(2, 3),
    )


@pytest.mark.nightly_on("jax", "tensorflow")
def test_the_task_is_saved_and_opened(harness, rng, images):
    arguments = {"backbone": tokens_model(rng), "num_classes": 3}
    harness.run_model_saving_test(keras_hub.models.ViTImageClassifier, arguments, images)


@pytest.mark.nightly_on("jax", "tensorflow")
def test_our_encoder_is_a_backbone(harness, images):
    """Serialization, `predict`, mixed precision, and Keras' int8 and float8 in their harness."""
    harness.run_vision_backbone_test(
        OurBackbone,
        {"name": "our_backbone"},
        keras.ops.convert_to_tensor(images),
        expected_output_shape=(2, 7, 16),
        run_data_format_check=False,
    )
