"""Export of models that the main job does not make: mixed precision, RGB, a softmax inside."""

import numpy as np
import pytest

import export as script
from tests.helpers import randomise, to_numpy
from vit_keras import applications, exporting
from vit_keras.exporting.serving import serving_model
from vit_keras.models import Preprocessing, VisionTransformer


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_preprocessing_and_softmax_are_inside(rng):
    model = randomise(VisionTransformer((8, 12), 4, 12, 1, 3, 20, 5), rng)
    model.preprocessing = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    pixels = rng.integers(0, 256, (3, 8, 12, 3), dtype="uint8")
    prepared = (pixels / 255 - [0.4, 0.5, 0.6]) / [0.2, 0.3, 0.4]
    expected = softmax(to_numpy(model(prepared.astype("float32"))))
    found = serving_model(model).predict(pixels, verbose=0)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_model_in_mixed_precision_is_exported_in_float32(rng, tmp_path):
    model = VisionTransformer((8, 12), 4, 12, 2, 3, 20, 5, dtype="mixed_bfloat16", classifier="map")
    randomise(model, rng)
    images = rng.integers(0, 256, (4, 8, 12, 3), dtype="uint8")
    folder = tmp_path / "out"
    first = exporting.export(model, folder, images, list("abcde"))
    (folder / "stale.txt").write_text("of an earlier export")
    second = exporting.export(model, folder, images, list("abcde"))
    for parity in (*first, *second):
        assert parity.difference < 1e-5, parity
    assert sorted(p.name for p in folder.iterdir()) == ["labels.txt", "model.tflite", "saved_model"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_application_is_not_given_a_second_softmax(rng):
    model = applications.ViTTi16(input_shape=(16, 16, 3), classes=4)
    randomise(model, rng, scale=0.1)
    pixels = rng.integers(0, 256, (2, 16, 16, 3), dtype="uint8")
    expected = to_numpy(model(applications.preprocess_input(pixels.astype("float32"))))
    np.testing.assert_allclose(serving_model(model).predict(pixels, verbose=0), expected, atol=1e-5)


def test_a_failed_export_leaves_what_was_there(rng, tmp_path, monkeypatch):
    model = randomise(VisionTransformer(8, 4, 12, 1, 3, 20, 5), rng)
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "model.tflite").write_bytes(b"good")
    monkeypatch.setattr("sys.executable", "/bin/false")
    images = np.zeros((1, 8, 8, 3), "uint8")
    with pytest.raises(RuntimeError, match="The export failed"):
        exporting.export(model, folder, images, list("abcde"))
    assert [p.name for p in tmp_path.rglob("*")] == ["out", "model.tflite"]


def test_a_file_that_differs_from_keras_is_an_error(tmp_path, monkeypatch, rng):
    from vit_keras.weights import save_model

    file = tmp_path / "a.keras"
    save_model(randomise(VisionTransformer(8, 4, 12, 1, 3, 20, 5), rng), file)
    parity = [exporting.Parity("saved_model", 1e-6, 1), exporting.Parity("model.tflite", 2e-3, 1)]
    monkeypatch.setattr(exporting, "export", lambda *_: parity)
    with pytest.raises(ValueError, match=r"differs from Keras by more than 0\.001"):
        script.main([str(file), "--out", str(tmp_path / "out")])
    with pytest.raises(ValueError, match="is no run, which has a folder: give an --out"):
        script.main([str(file)])
