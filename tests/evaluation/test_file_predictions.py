"""Predictions for picture files, compared with outputs computed by hand."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.helpers import randomize, to_numpy
from vit_keras import evaluation
from vit_keras.evaluation import Predictor
from vit_keras.models import Preprocessing, VisionTransformer

pytestmark = pytest.mark.on("torch")

PREPROCESSING = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))


@pytest.fixture
def model(rng):
    model = randomize(VisionTransformer(8, 4, 12, 1, 3, 20, 3, channels=3), rng)
    model.class_names = ("x", "y", "z")
    model.preprocessing = PREPROCESSING
    return model


@pytest.fixture
def pictures(rng, tmp_path):
    """Five pictures of the model's size: their paths, and their pixels `(5, 8, 8, 3)`."""
    pixels = rng.integers(0, 256, (5, 8, 8, 3), dtype="uint8")
    paths = [tmp_path / f"{i}.png" for i in range(5)]
    for path, picture in zip(paths, pixels):
        Image.fromarray(picture).save(path)
    return paths, pixels


@pytest.mark.parametrize("batch", [2, 5, 9])
def test_pictures_are_prepared_as_the_model_says(model, pictures, batch):
    paths, pixels = pictures
    prepared = (pixels / 255 - PREPROCESSING.mean) / PREPROCESSING.std
    logits = to_numpy(model(prepared.astype("float32"))).astype("float64")
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    predictor = evaluation.make_predictor(model)
    rows = list(evaluation.predict_files(predictor, paths, batch=batch, top=2))
    assert [row.path for row in rows] == paths and not any(row.error for row in rows)
    for row, p in zip(rows, expected):
        assert [name for name, _ in row.classes] == ["xyz"[k] for k in p.argsort()[::-1][:2]]
        np.testing.assert_allclose([q for _, q in row.classes], np.sort(p)[::-1][:2], atol=1e-5)
    short = evaluation.classify(model, paths[:2], top=2)
    for classes, row in zip(short, rows):
        assert [name for name, _ in classes] == [name for name, _ in row.classes]


def means(calls, gives_probabilities=True):
    """A predictor that gives each channel's mean pixel; `calls` collects the sizes of batches."""

    def run(images):
        calls.append(len(images))
        return images.mean(axis=(1, 2))

    pixels = Preprocessing(mean=(0.0,), std=(1 / 255,))
    return Predictor(run, (8, 8, 3), 3, pixels, gives_probabilities)


@pytest.mark.parametrize("form", ["table", "csv", "jsonl", "html"])
def test_rows_are_written_before_all_pictures_are_read(pictures, form):
    """At most three batches of pictures have no row yet, so memory is constant."""
    paths, _ = pictures
    taken, written = [], []

    def endless():
        for number in range(200):
            taken.append(number)
            yield paths[number % 5]

    class File(io.BytesIO):
        def write(self, text):
            written.append(len(taken))
            return super().write(text)

    rows = evaluation.predict_files(means([]), endless(), batch=4, top=2, picture_px=8)
    file = File()
    evaluation.write_file_predictions(rows, file, form, top=2)
    behind = [most - number for number, most in enumerate(written)]
    assert len(taken) == 200 and len(written) >= 200
    assert max(behind) <= 12 and written[0] < 20


def test_an_unreadable_picture_stops_or_has_a_row_of_its_own(pictures):
    paths, pixels = pictures
    paths[1].write_bytes(b"not a picture")
    paths[2].unlink()
    with pytest.raises(ValueError, match=r"1\.png' cannot be read as an image"):
        list(evaluation.predict_files(means([]), paths))
    with pytest.raises(FileNotFoundError, match=r"no image at .*2\.png'"):
        list(evaluation.predict_files(means([]), paths[2:]))
    for batch in (1, 2, 5):
        rows = list(evaluation.predict_files(means([]), paths, batch=batch, on_error="skip"))
        assert [row.path for row in rows] == paths
        assert [row.error is None for row in rows] == [True, False, False, True, True]
        assert rows[1].classes == () and "1.png' cannot be read as an image" in rows[1].error
        for i in (0, 3, 4):
            best = pixels[i].mean(axis=(0, 1)).max()
            assert rows[i].classes[0][1] == pytest.approx(best, rel=1e-5)
    assert list(evaluation.predict_files(means([]), [])) == []
