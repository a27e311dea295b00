"""Predictions for picture files, compared with outputs computed by hand."""

import dataclasses
import io
import json
import os

import numpy as np
import pytest
from PIL import Image

from tests.helpers import randomize, to_numpy
from vit_keras import evaluation, models, weights
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


def test_the_last_batch_is_filled_up(pictures):
    paths, pixels = pictures
    calls = []
    rows = evaluation.predict_files(means(calls), iter(paths), batch=2, top=1)
    assert calls == []
    first = next(rows)
    assert calls == [2]
    for row, picture in zip([first, *rows], pixels, strict=True):
        channels = picture.mean(axis=(0, 1))
        assert row.classes == ((str(channels.argmax()), pytest.approx(channels.max(), rel=1e-5)),)
    assert calls == [2, 2, 2]


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


def test_classes_below_the_threshold_are_left_out(pictures):
    paths, pixels = pictures
    shares = pixels.mean(axis=(1, 2)) / 255  # (5, 3)
    threshold = float(np.median(shares.max(axis=1)))
    predictor = dataclasses.replace(means([]), preprocessing=Preprocessing((0.0,), (1.0,)))
    rows = list(evaluation.predict_files(predictor, paths, top=2, threshold=threshold))
    for row, share in zip(rows, shares, strict=True):
        kept = [k for k in np.argsort(-share)[:2] if share[k] >= threshold - 1e-6]
        assert [name for name, _ in row.classes] == [str(k) for k in kept] and row.error is None
    assert sorted(map(bool, (row.classes for row in rows))) == [False, False, True, True, True]


def test_attention_is_the_rollout_of_the_model(model, pictures):
    paths, pixels = pictures
    rows = list(
        evaluation.predict_files(
            evaluation.make_predictor(model), paths, batch=3, attention=True, picture_px=4
        )
    )
    images = ((pixels / 255 - PREPROCESSING.mean) / PREPROCESSING.std).astype("float32")
    attention = to_numpy(models.attention_maps(model)(images))
    expected = models.attention_rollout(attention)[:, 0, 1:].reshape(5, 2, 2)
    np.testing.assert_allclose([row.attention for row in rows], expected, rtol=1e-4)
    assert [row.picture.shape for row in rows] == [(4, 4, 3)] * 5
    for row, picture in zip(rows, pixels):
        assert row.seen == (0, 0, 1, 1)
        np.testing.assert_allclose(row.picture.mean(), picture.mean(), atol=6)


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


def test_outputs_that_are_not_finite_are_an_error(pictures):
    predictor = dataclasses.replace(means([]), run=lambda x: x.mean(axis=(1, 2)) * np.nan)
    with pytest.raises(ValueError, match=r"must be finite. Received: NaN .* for '.*0\.png'"):
        list(evaluation.predict_files(predictor, pictures[0], on_error="skip"))


def test_names_that_are_not_utf8_are_written_as_escapes(pictures, tmp_path):
    name = os.fsdecode(b"b\xe9b\xe9.png")
    path = tmp_path / name
    path.write_bytes(pictures[0][0].read_bytes())
    text = {}
    for form in ("table", "csv", "jsonl", "html", "parquet"):
        rows = evaluation.predict_files(means([]), [path], top=1, picture_px=8)
        evaluation.write_file_predictions(rows, file := io.BytesIO(), form, top=1)
        text[form] = file.getvalue()
    assert all(rb"b\udce9b\udce9.png" in content for content in text.values())
    assert json.loads(text["jsonl"])["path"] == str(path)


def test_checkpoints_of_other_formats_predict_the_same(model, pictures, tmp_path):
    expected = evaluation.classify(model, pictures[0])
    weights.save_model(model, tmp_path / "a.keras")
    weights.save(model, tmp_path / "a", format="huggingface")
    for name in ("a.keras", "a"):
        predictor, _ = evaluation.open_predictor(tmp_path / name)
        for row, wanted in zip(evaluation.classify(predictor, pictures[0]), expected):
            assert [c for c, _ in row] == [c for c, _ in wanted]
            np.testing.assert_allclose([p for _, p in row], [p for _, p in wanted], atol=1e-5)
