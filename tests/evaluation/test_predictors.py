"""Models and exported files behind one interface."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.exporting.builds import onnx_means
from tests.helpers import randomize, run_script
from vit_keras import data, evaluation, exporting
from vit_keras.models import Preprocessing, VisionTransformer
from vit_keras.weights import save_model

NAMES = tuple("abcde")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model with bicubic resizing, a crop, and a mean of its own, and its exported files."""
    rng, folder = np.random.default_rng(5), tmp_path_factory.mktemp("exported")
    model = randomize(VisionTransformer(8, 4, 12, 1, 3, 20, 5), rng, 0.6)
    model.preprocessing = Preprocessing((0.4, 0.5, 0.6), (0.2, 0.3, 0.4), "bicubic", True, 0.8)
    model.class_names = NAMES
    save_model(model, folder / "model.keras")
    options = {"precisions": ["fp32"], "threads": ()}
    exporting.export(model, folder / "export", formats=["savedmodel", "litert"], **options)
    return folder


def split(rng, images=11, lowest=0):
    pixels = rng.integers(0, 256, (images, 12, 16, 3), dtype="uint8")
    return data.from_arrays(pixels, lowest + rng.integers(0, 5, images))


@pytest.mark.once
def test_exported_files_predict_as_the_model_does(exported, rng):
    images = split(rng)
    model, run = evaluation.open_predictor(exported / "model.keras")
    assert run is None and model.class_names == NAMES
    expected = model.predict(model.batches(images, 4))
    assert expected.images_per_second > 0
    for name in ("saved_model", "model.tflite"):
        predictor, run = evaluation.open_predictor(exported / "export" / name)
        assert predictor.input_shape == (8, 8, 3) and predictor.class_names == NAMES
        actual = predictor.predict(predictor.batches(images, 4))
        # Exported files see pixels rounded to uint8.
        np.testing.assert_allclose(actual.probabilities, expected.probabilities, atol=0.02)
        np.testing.assert_allclose(actual.probabilities.sum(axis=1), 1, atol=1e-3)
        np.testing.assert_array_equal(actual.labels, images.labels)


@pytest.mark.once
def test_exported_files_classify_pictures(exported, rng, tmp_path):
    Image.fromarray(rng.integers(0, 256, (20, 14, 3), dtype="uint8")).save(tmp_path / "a.png")
    actual = [
        evaluation.classify(evaluation.open_predictor(exported / name)[0], [tmp_path / "a.png"])[0]
        for name in ("model.keras", "export/model.tflite")
    ]
    assert [name for name, _ in actual[0]] == [name for name, _ in actual[1]]
    np.testing.assert_allclose([p for _, p in actual[0]], [p for _, p in actual[1]], atol=0.02)


@pytest.mark.once
def test_files_without_what_lies_beside_them(exported, tmp_path):
    file = tmp_path / "alone.tflite"
    file.write_bytes((exported / "export" / "model.tflite").read_bytes())
    predictor, _ = evaluation.open_predictor(file)
    assert predictor.class_names == NAMES  # which the file holds itself
    assert predictor.preprocessing.interpolation == "bilinear" and predictor.gives_probabilities
    logits, _ = evaluation.open_predictor(onnx_means(tmp_path / "logits.onnx", 2))
    assert not logits.gives_probabilities and logits.class_names is None  # means of pixels
    with pytest.raises(ValueError, match="must be the exported file's. Received: image_size=16"):
        evaluation.open_predictor(file, image_size=16)
    with pytest.raises(ValueError, match="features, which an exported file does not give"):
        evaluation.evaluate_few_shot(predictor, None, batch=4)


def with_manifest(path, name, **known):
    """Writes a manifest beside `path`, with the preprocessing of `exported` and what is `known`."""
    preprocessing = {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4], "crop_fraction": 0.8}
    inside = known.pop("preprocessing_is_inside", True)
    source = {"preprocessing": preprocessing, "preprocessing_is_inside": inside}
    known = {"input": source, "output": "softmax", "files": [{"file": name}], **known}
    (path.parent / "manifest.json").write_text(json.dumps(known))
    return path


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


@pytest.mark.once
def test_exported_files_are_answered_without_keras(exported, rng, tmp_path):
    for number in range(2):
        pixels = rng.integers(0, 256, (8, 8, 3), dtype="uint8")
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    means = onnx_means(tmp_path / "model.onnx", 2)  # uint8
    with_manifest(means, "model.onnx", input={}, output="logits")
    found = predicted_alone("model.onnx", "0.png", "1.png", "--top", "3", cwd=tmp_path)
    for number, row in enumerate(found):
        pixels = np.array(Image.open(tmp_path / f"{number}.png"), "float64")
        e = np.exp(pixels.mean(axis=(0, 1)) - 128)
        assert row == pytest.approx(dict(zip("012", e / e.sum())), rel=1e-4)

    model = evaluation.open_predictor(exported / "model.keras")[0]
    (expected,) = evaluation.classify(model, [tmp_path / "0.png"], top=5)
    tflite = exported / "export" / "model.tflite"
    for options in ([], ["--image_size", "8", "--threshold", "0"]):
        (row,) = predicted_alone(tflite, "0.png", "--top", "5", *options, cwd=tmp_path)
        assert row == pytest.approx(dict(expected), abs=0.01)  # whose pixels are rounded
    (row,) = predicted_alone(tflite, "0.png", "--top", "5", "--tta", "flip", cwd=tmp_path)
    flipped = evaluation.with_views(model, ["flip"])
    (expected,) = evaluation.classify(flipped, [tmp_path / "0.png"], top=5)
    assert row == pytest.approx(dict(expected), abs=0.01)


def model_of(classes=5, names=NAMES):
    model = VisionTransformer(8, 4, 12, 1, 3, 20, classes)
    model.class_names = names
    return evaluation.make_predictor(model)


@pytest.mark.parametrize(
    ("predictor", "names", "message"),
    [
        ({}, "abcd", "must have the model's 5 classes. Received: a data set with 4"),
        ({}, "abdce", "2 that differ, such as class 2, 'c' in the model and 'd' in the data set"),
    ],
)
def test_other_classes_are_refused(rng, predictor, names, message):
    with pytest.raises(ValueError, match=message):
        evaluation.evaluate(model_of(**predictor), split(rng), names, batch=4)


def test_everything_about_a_model_at_once(rng, tmp_path):
    predictor, images = model_of(), split(rng, 40)
    images = data.Split(images.labels, images.read, name=lambda index: f"image {index}")
    randomize(predictor.model, rng, 0.6)
    lists = [[int(k) for k in rng.choice(5, rng.integers(0, 3), replace=False)] for _ in range(40)]
    (tmp_path / "real.json").write_text(json.dumps(lists))
    actual = evaluation.evaluate(
        predictor,
        images,
        "vwxyz",
        batch=16,
        real=tmp_path / "real.json",
        predictions=tmp_path / "a.csv",
        ignore_class_names=True,
    )
    logits, labels = evaluation.predict(predictor.model, predictor.batches(images, 16))
    best = logits.argmax(axis=1)
    assert actual["accuracy"] == pytest.approx((best == labels).mean())
    right = [k in row for k, row in zip(best, lists) if row]
    assert actual["real_accuracy"] == pytest.approx(np.mean(right))
    assert actual["real_images"] == len(right)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = evaluation.measure_calibration(probabilities, labels)["ece"]
    assert actual["ece"] == pytest.approx(expected, abs=1e-5)
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert len(lines) == 41 and lines[-1].startswith(f"39,image 39,{labels[39]},{best[39]},")
