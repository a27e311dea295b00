"""Folders for transformers.js and Optimum: their pipelines answer as Keras does."""

import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from PIL import Image

from tests.helpers import ROOT, randomize, to_numpy
from tests.reference import softmax
from vit_keras import exporting, models, runtimes
from vit_keras.exporting import verification
from vit_keras.models import VisionTransformer, preprocessing_of
from vit_keras.support.box_metrics import scored_corners, to_corners

pytestmark = pytest.mark.once
SIDE = 64
SCRIPT = pathlib.Path(__file__).parent / "transformers_js" / "pipelines.mjs"
MODULES = pathlib.Path(os.environ.get("NODE_MODULES", ROOT / "demo" / "node_modules"))
LIBRARY = MODULES / "@huggingface" / "transformers"


def encoder(rng, num_classes=None, num_layers=1):
    return randomize(VisionTransformer(SIDE, 16, 24, num_layers, 3, 48, num_classes), rng)


def detector(rng):
    return randomize(models.with_joined_boxes(models.detector(encoder(rng), num_classes=3)), rng)


def write_folder(model, folder, **options):
    pictures = verification.photographs((SIDE, SIDE, 3), 4)
    options = {"formats": ["huggingface_onnx"], "precisions": ["fp32"], **options}
    return exporting.export(model, folder, images=pictures, **options)


def prepared(model, picture):
    return preprocessing_of(model).normalize(picture[None]).astype("float32")


@pytest.fixture(scope="module")
def picture():
    return verification.photographs((SIDE, SIDE, 3), 3)[2]


def test_a_detector_has_the_names_and_axes_of_yolos(rng, tmp_path, picture):
    model = detector(rng)
    model.class_names = ["cat", "dog", "cow"]
    (row,) = write_folder(model, tmp_path / "out")
    file = tmp_path / "out" / row["file"]
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    images = prepared(model, picture)
    names = ["logits", "pred_boxes"]
    outputs = session.run(names, {"pixel_values": images.transpose(0, 3, 1, 2)})
    expected = to_numpy(model(images))
    np.testing.assert_allclose(np.concatenate(outputs, axis=-1), expected, atol=1e-4)
    scores = scored_corners(expected)
    scores[..., -4:] = scores[..., -4:].clip(0, 1)
    np.testing.assert_allclose(runtimes.open(file)(images), scores, atol=1e-4)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["id2label"] == {"0": "cat", "1": "dog", "2": "cow"}
    fields = json.loads((tmp_path / "out" / "preprocessor_config.json").read_text())
    pixels = picture * fields["rescale_factor"] - fields["image_mean"]
    np.testing.assert_allclose((pixels / fields["image_std"])[None], images, atol=1e-5)


@pytest.mark.nightly
def test_four_bits_hold_the_weights(rng, tmp_path):
    rows = write_folder(encoder(rng, 7, 2), tmp_path / "out", precisions=["fp32", "int4"])
    assert [row["file"] for row in rows] == ["onnx/model.onnx", "onnx/model_q4.onnx"]
    tensors = onnx.load(tmp_path / "out" / rows[1]["file"]).graph.initializer
    packed = [t for t in tensors if t.data_type == onnx.TensorProto.UINT8]  # two in a byte
    assert sum(np.prod(t.dims) for t in packed) > 4500  # some layers may stay in float32
    assert rows[1]["agreement"] >= 0.99


@pytest.mark.nightly
def test_the_pipelines_of_transformers_js_answer_as_keras(rng, tmp_path, picture):
    missing = [name for name in ("node", "chromium") if shutil.which(name) is None]
    if missing or not LIBRARY.is_dir():
        pytest.skip(f"not installed: {' '.join([*missing, str(LIBRARY)])}")
    Image.fromarray(picture).save(tmp_path / "picture.png")
    folders = {"classes": encoder(rng, 7), "boxes": detector(rng)}
    folders["masks"] = randomize(models.segmenter(encoder(rng), 4), rng)
    for name, model in folders.items():
        write_folder(model, tmp_path / name)
    folders["features"] = folders["classes"]
    write_folder(folders["classes"], tmp_path / "features", output="features")
    command = ["node", SCRIPT, MODULES, tmp_path, tmp_path / "picture.png"]
    where = {**os.environ, "CHROMIUM": shutil.which("chromium")}
    done = subprocess.run(command, capture_output=True, text=True, env=where, timeout=600)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == 2  # of Node and of Chromium
    for answers in told:
        for name, model in folders.items():
            CHECKS[name](model, prepared(model, picture), answers[name])


def check_classes(model, images, rows):
    expected = softmax(to_numpy(model(images)))[0]
    told = {int(row["label"]): row["score"] for row in rows}
    np.testing.assert_allclose([told[k] for k in range(7)], expected, atol=1e-4)


def check_features(model, images, tensors):
    import keras

    norm = model.get_layer("encoder_norm").output
    parts = keras.Model(model.input, [norm, model.get_layer("head").input])(images)
    for tensor, expected in zip(tensors, map(to_numpy, parts), strict=True):
        assert tensor["dims"] == list(expected.shape)
        np.testing.assert_allclose(np.ravel(tensor["data"]), expected.ravel(), atol=1e-4)


def check_masks(model, images, segments):
    told = np.full(SIDE * SIDE, -1)
    for segment in segments:
        told[np.array(segment["mask"]) > 0] = int(segment["label"])
    logits = to_numpy(model(images))[0].reshape(-1, 4)
    best = np.sort(logits, axis=-1)
    clear = best[:, -1] - best[:, -2] > 1e-4
    np.testing.assert_array_equal(told[clear], logits.argmax(axis=-1)[clear])
    assert clear.mean() > 0.99 and len(segments) > 1


def check_boxes(model, images, rows):
    joined = to_numpy(model(images))[0]
    shares = softmax(joined[:, :-4])
    kept = shares.argmax(axis=-1) < 3
    expected = np.column_stack([shares[kept].max(axis=-1), to_corners(joined[kept, -4:])])
    labels = [str(k) for k in shares[kept].argmax(axis=-1)]
    sides = ("xmin", "ymin", "xmax", "ymax")
    told = [[row["score"], *(row["box"][side] for side in sides)] for row in rows]
    assert [row["label"] for row in rows] == labels and labels
    np.testing.assert_allclose(told, expected, atol=1e-4)


CHECKS = {
    "classes": check_classes,
    "features": check_features,
    "masks": check_masks,
    "boxes": check_boxes,
}
