"""Models and exported files behind one interface, averages over views, and rows of pictures."""

import csv
import dataclasses
import io
import json
import pathlib

import keras
import numpy as np
import pytest

from tests.exporting.builds import onnx_means
from tests.helpers import assert_close, randomize, run_script, to_numpy, write_picture
from vit_keras import data, evaluation, exporting
from vit_keras.config import DataConfig
from vit_keras.evaluation import Predictor
from vit_keras.models import Preprocessing, VisionTransformer, segmenter
from vit_keras.support.tasks import Task
from vit_keras.weights import save_model

pytestmark = pytest.mark.once
REGIONS = ("ground", "house", "tree")


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers"])
def test_answers_are_means_over_views(rng, kind):
    classifier = randomize(VisionTransformer((16, 24), 8, 16, 1, 2, 16, num_classes=3), rng)
    images = rng.normal(size=(4, 16, 24, 3)).astype("float32")
    classifier.task = Task(kind)
    predictor = evaluation.make_predictor(classifier)
    seen = (images, images[:, :, ::-1])
    answers = [predictor.as_probabilities(predictor.run(view)) for view in seen]
    averaged = evaluation.with_views(predictor, ["flip"])
    received = averaged.as_probabilities(averaged.run(images))
    assert np.abs(answers[0] - answers[-1]).max() > 1e-3  # the views differ
    assert_close(received, np.mean(answers, axis=0), rtol=1e-5)


def test_a_mirrored_image_has_the_mirrored_map(rng):
    sizes = {"hidden_size": 12, "num_layers": 1, "num_heads": 2, "mlp_dim": 16}
    encoder = VisionTransformer((8, 12), 4, **sizes, num_classes=None, channels=3)
    model = randomize(segmenter(encoder, 3, width=8), rng)
    images = rng.normal(size=(3, 8, 12, 3)).astype("float32")
    model.task, model.class_names = Task("masks"), list(REGIONS)
    predictor = evaluation.make_predictor(model)
    averaged, mirrored = evaluation.with_views(predictor, ["flip"]), images[:, :, ::-1]
    maps = averaged.run(images)
    np.testing.assert_array_equal(maps, averaged.run(mirrored)[:, :, ::-1])
    np.testing.assert_allclose(maps.sum(axis=-1), 1, rtol=1e-5)
    alone = predictor.run(images), predictor.run(mirrored)[:, :, ::-1]
    assert np.abs(alone[0] - alone[1]).max() > 0.01  # the model alone is not symmetric


NAMES = tuple("abcde")
PREPROCESSING = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model with bicubic resizing, a crop, and a mean of its own, and its TFLite file."""
    rng, folder = np.random.default_rng(5), tmp_path_factory.mktemp("exported")
    model = randomize(VisionTransformer(8, 4, 12, 1, 3, 20, 5), rng, 0.6)
    model.preprocessing = Preprocessing((0.4, 0.5, 0.6), (0.2, 0.3, 0.4), "bicubic", True, 0.8)
    model.class_names = NAMES
    save_model(model, folder / "model.keras")
    options = {"precisions": ["fp32"]}
    exporting.export(model, folder / "export", formats=["litert"], **options)
    return folder


def split(rng):
    pixels = rng.integers(0, 256, (11, 12, 16, 3), dtype="uint8")
    return data.from_arrays(pixels, rng.integers(0, 5, 11))


def test_exported_files_predict_as_the_model_does(exported, rng):
    images = split(rng)
    files = (exported / "model.keras", exported / "export" / "model.tflite")
    (model, run), (predictor, _) = map(evaluation.open_predictor, files)
    assert run is None and model.class_names == predictor.class_names == NAMES
    outputs = [x.outputs(x.batches(images, 4)) for x in (model, predictor)]
    (expected, _), (actual, labels) = outputs
    # Exported files see pixels rounded to uint8.
    np.testing.assert_allclose(actual, model.as_probabilities(expected), atol=0.02)
    np.testing.assert_array_equal(labels, images.labels)


def test_files_without_what_lies_beside_them(exported, tmp_path):
    file = tmp_path / "alone.tflite"
    file.write_bytes((exported / "export" / "model.tflite").read_bytes())
    predictor, _ = evaluation.open_predictor(file)
    assert predictor.class_names == NAMES  # which the file holds itself
    assert predictor.preprocessing.interpolation == "bilinear" and predictor.gives_probabilities
    logits, _ = evaluation.open_predictor(onnx_means(tmp_path / "logits.onnx", 2))
    assert not logits.gives_probabilities and logits.class_names is None  # means of pixels
    logits, _ = evaluation.open_predictor(onnx_means(tmp_path / "any.onnx", 2, side="side"), 8)
    assert logits.input_shape == (8, 8, 3) and not logits.gives_probabilities
    with pytest.raises(ValueError, match="must be the exported file's. Received: image_size=16"):
        evaluation.open_predictor(file, image_size=16)
    told = {"input": {}, "output": "mask", "files": [{"file": "any.onnx"}]}
    (tmp_path / "manifest.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match="masks needs the names of its classes. Received: .*any"):
        evaluation.open_predictor(tmp_path / "any.onnx", 8)


# Runs `vit-keras` where nothing but NumPy, Pillow, tqdm and the runtimes can be imported.
ALONE = """
import sys
absent = "keras tensorflow torch jax scipy sklearn pandas matplotlib pyarrow h5py".split()
sys.modules.update(dict.fromkeys(absent))
sys.argv[0] = "vit-keras"
from vit_keras.commands import main
code = main()
assert not [name for name in absent if sys.modules[name]]
sys.exit(code)
"""


def predicted_alone(*arguments, cwd):
    """The names and probabilities of each picture, as a process without Keras predicts them."""
    command = ("-c", ALONE, "predict", *arguments, "--format", "jsonl")
    rows = map(json.loads, run_script(*command, cwd=cwd).stdout.splitlines())
    return [{c["name"]: c["probability"] for c in row["classes"]} for row in rows]


def test_exported_files_are_answered_without_keras(exported, rng, tmp_path):
    pictures = [write_picture(tmp_path / f"{number}.png", rng, (8, 8)) for number in range(2)]
    onnx_means(tmp_path / "model.onnx", 2)  # uint8
    known = {"input": {}, "output": "logits", "files": [{"file": "model.onnx"}]}
    (tmp_path / "manifest.json").write_text(json.dumps(known))
    found = predicted_alone("model.onnx", "0.png", "1.png", "--top", "3", cwd=tmp_path)
    for pixels, row in zip(pictures, found, strict=True):
        e = np.exp(pixels.mean(axis=(0, 1)) - 128)
        assert row == pytest.approx(dict(zip("012", e / e.sum())), rel=1e-4)

    model = evaluation.open_predictor(exported / "model.keras")[0]
    (expected,) = evaluation.classify(model, [tmp_path / "0.png"], top=5)
    tflite = exported / "export" / "model.tflite"
    options = ("--top", "5", "--image_size", "8", "--threshold", "0")
    (row,) = predicted_alone(tflite, "0.png", *options, cwd=tmp_path)
    assert row == pytest.approx(dict(expected), abs=0.01)  # whose pixels are rounded
    (row,) = predicted_alone(tflite, "0.png", "--top", "5", "--tta", "flip", cwd=tmp_path)
    flipped = evaluation.with_views(model, ["flip"])
    (expected,) = evaluation.classify(flipped, [tmp_path / "0.png"], top=5)
    assert row == pytest.approx(dict(expected), abs=0.01)


def test_other_classes_are_refused(rng):
    model = VisionTransformer(8, 4, 12, 1, 3, 20, 5)
    model.class_names = NAMES
    for names, message in (
        ("abcd", "must have the model's 5 classes. Received: a data set with 4"),
        ("abdce", "2 that differ, such as class 2, 'c' in the model and 'd' in the data"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluation.evaluate(evaluation.make_predictor(model), split(rng), names, batch=4)


def test_a_softmax_is_not_applied_twice(rng):
    base = VisionTransformer(8, 4, 12, 1, 3, 20, 5)
    model = keras.Model(base.input, keras.layers.Dense(4, activation="softmax")(base.output))
    randomize(model, rng)
    images = rng.uniform(-1, 1, (2, 8, 8, 3)).astype("float32")
    assert_close(evaluation.probabilities(model, images), model(images), rtol=2e-6)


@pytest.fixture
def pictures(rng, tmp_path):
    """Five pictures of the model's size: their paths, and their pixels `(5, 8, 8, 3)`."""
    paths = [tmp_path / f"{i}.png" for i in range(5)]
    return paths, np.stack([write_picture(path, rng, (8, 8)) for path in paths])


def test_pictures_are_prepared_as_the_model_says(rng, pictures):
    model = randomize(VisionTransformer(8, 4, 12, 1, 3, 20, 3, channels=3), rng)
    model.class_names, model.preprocessing = ("x", "y", "z"), PREPROCESSING
    paths, pixels = pictures
    prepared = (pixels / 255 - PREPROCESSING.mean) / PREPROCESSING.std
    logits = to_numpy(model(prepared.astype("float32"))).astype("float64")
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    predictor = evaluation.make_predictor(model)
    rows = list(evaluation.predict_files(predictor, paths, batch=2, top=2))
    assert [row.path for row in rows] == paths and not any(row.error for row in rows)
    short = evaluation.classify(model, paths, top=2)
    for row, classes, p in zip(rows, short, expected, strict=True):
        for found in (row.classes, classes):
            assert [name for name, _ in found] == ["xyz"[k] for k in p.argsort()[::-1][:2]]
            np.testing.assert_allclose([q for _, q in found], np.sort(p)[::-1][:2], atol=1e-5)


def means():
    """A predictor that gives each channel's mean pixel."""
    pixels = Preprocessing(mean=(0.0,), std=(1 / 255,))
    return Predictor(lambda images: images.mean(axis=(1, 2)), (8, 8, 3), 3, pixels, True)


def test_of_equally_probable_classes_the_first_comes_first_as_in_reports(rng, tmp_path):
    write_picture(tmp_path / "a.png", rng, (8, 8))
    run = lambda images: np.full((len(images), 3), 1 / 3, "float32")
    equal = dataclasses.replace(means(), run=run)
    (row,) = evaluation.predict_files(equal, [tmp_path / "a.png"], top=2)
    assert [name for name, _ in row.classes] == ["0", "1"]


def test_a_row_of_an_evaluation_names_the_picture_that_was_read(pictures, tmp_path):
    paths, pixels = pictures
    paths[1].write_bytes(b"not a picture")
    table, real, out = (tmp_path / name for name in ("t.csv", "real.json", "out.csv"))
    table.write_text("path,label\n" + "".join(f"{i}.png,{i % 3}\n" for i in range(5)))
    best = pixels.mean(axis=(1, 2)).argmax(axis=1).tolist()
    real.write_text(json.dumps([[k] if i != 1 else [] for i, k in enumerate(best)]))
    dataset = data.load(f"table:{table}", 3, DataConfig(on_corrupt="skip", test_percent=0))
    told = {"batch": 2, "real": real, "predictions": out}
    report = evaluation.evaluate(means(), dataset.split("train"), dataset.class_names, **told)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    read = [paths.index(pathlib.Path(row["path"])) for row in rows]
    assert read == [0, 2, 2, 3, 4] and [row["index"] for row in rows] == [*"01234"]
    for row, i in zip(rows, read):
        assert (int(row["label"]), int(row["predicted"])) == (i % 3, best[i])
    assert (report["real_accuracy"], report["real_images"]) == (1, 5)


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

    rows = evaluation.predict_files(means(), endless(), batch=4, top=2, picture_px=8)
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
        list(evaluation.predict_files(means(), paths))
    with pytest.raises(FileNotFoundError, match=r"no image at .*2\.png'"):
        list(evaluation.predict_files(means(), paths[2:]))
    for batch in (1, 2, 5):
        rows = list(evaluation.predict_files(means(), paths, batch=batch, on_error="skip"))
        assert [row.path for row in rows] == paths
        assert [row.error is None for row in rows] == [True, False, False, True, True]
        assert rows[1].classes == () and "1.png' cannot be read as an image" in rows[1].error
        for i in (0, 3, 4):
            best = pixels[i].mean(axis=(0, 1)).max()
            assert rows[i].classes[0][1] == pytest.approx(best, rel=1e-5)
    assert list(evaluation.predict_files(means(), [])) == []
