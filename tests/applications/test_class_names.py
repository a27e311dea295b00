"""Own class names in the constructors and in `decode_predictions`."""

import keras
import numpy as np
import pytest

from tests.helpers import randomize, to_numpy
from vit_keras import applications
from vit_keras.applications import decode_predictions
from vit_keras.models import VisionTransformer
from vit_keras.weights import save_model

pytestmark = pytest.mark.on("torch")

NAMES = ["cat", "dog", "<owl> & co", "emu"]


@pytest.fixture(scope="module")
def model():
    build = applications.ViTTi16(input_shape=(32, 32, 3), class_names=NAMES)
    return randomize(build, np.random.default_rng(2), scale=0.1)


@pytest.fixture
def imagenet(monkeypatch):
    """ImageNet's index as Keras downloads it, with ids of our own."""
    index = {str(k): [f"n{k:08}", f"class {k}"] for k in range(1000)}
    monkeypatch.setattr("keras.src.applications.imagenet_utils.CLASS_INDEX", index)


def test_names_set_the_classes_and_stay_in_the_file(model, tmp_path):
    assert model.output_shape == (None, 4) and list(model.class_names) == NAMES
    save_model(model, tmp_path / "a.keras")
    assert list(keras.saving.load_model(tmp_path / "a.keras").class_names) == NAMES
    renamed = applications.ViTTi16(
        input_shape=(32, 32, 3), class_names=list("wxyz"), weights=str(tmp_path / "a.keras")
    )
    assert list(renamed.class_names) == list("wxyz")  # own names, before those of the file


def test_own_names_are_decoded_from_an_argument_or_the_model(model, rng):
    images = rng.uniform(-1, 1, (3, 32, 32, 3)).astype("float32")
    preds = to_numpy(model(images))
    expected = [
        [(NAMES[k], NAMES[k], scores[k]) for k in sorted(range(4), key=lambda k: -scores[k])[:2]]
        for scores in preds
    ]
    assert decode_predictions(preds, top=2, class_names=NAMES) == expected
    assert decode_predictions(keras.ops.convert_to_tensor(preds), top=2, model=model) == expected
    assert [len(row) for row in decode_predictions(preds, model=model)] == [4] * 3
    renamed = decode_predictions(preds, top=1, class_names=list("wxyz"), model=model)
    assert [row[0][0] for row in renamed] == ["wxyz"[k] for k in preds.argmax(axis=1)]


def test_without_names_the_classes_are_imagenets(imagenet, rng):
    preds = rng.uniform(size=(2, 1000)).astype("float32")
    assert decode_predictions(preds, top=3) == keras.applications.resnet50.decode_predictions(
        preds, top=3
    )
    nameless = VisionTransformer(8, 4, 12, 1, 3, 20, 1000)
    best = decode_predictions(preds, 1, model=nameless)[0][0]
    assert best == (f"n{preds[0].argmax():08}", f"class {preds[0].argmax()}", preds[0].max())
