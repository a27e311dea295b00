"""Files of every design, of Keras' own export and of torch answer in their runtimes as Keras."""

import copy
import json
import zipfile

import keras
import numpy as np
import pytest

from tests.designs import DESIGNS, random_design
from tests.exporting.builds import check_graph, export_files, small_model
from tests.helpers import ROOT, assert_close, randomize, to_numpy
from vit_keras import inspection, runtimes
from vit_keras.exporting import export_patch_sizes, targets
from vit_keras.exporting.serving import serving_model
from vit_keras.models import VisionTransformer, with_patch_size
from vit_keras.support.preprocessing import Resizing

# One has most options, the other windows; `make nightly` exports the others too.
EXPORTED = {"DINOv3": ["litert", "onnx"], "ViTDet": ["litert"]}
KERAS_FORMATS = {  # by the backend: what Keras writes, and the name of a file that a runtime opens
    # tf2onnx cannot write Keras' GELU on TensorFlow (Erfc), in any model
    "tensorflow": [("tf_saved_model", "saved_model"), ("litert", "model.tflite")],
    "jax": [("tf_saved_model", "saved_model")],
    "torch": [("onnx", "model.onnx")],
}[keras.backend.backend()]


@pytest.mark.once
@pytest.mark.parametrize(
    "name", [n if n in EXPORTED else pytest.param(n, marks=pytest.mark.nightly) for n in DESIGNS]
)
def test_files_answer_in_their_runtimes_as_keras_does(name, tmp_path):
    model = random_design(name)
    pixels = np.random.default_rng(6).integers(0, 256, (2, *model.input_shape[1:]), dtype="uint8")
    expected = model.predict_on_batch(model.preprocessing.normalize(pixels.astype("float32")))
    formats = EXPORTED.get(name, ["litert", "onnx"])
    rows = export_files(model, tmp_path, pixels, output="logits", formats=formats)
    assert [row["format"] for row in rows] == formats
    for row in rows:
        outputs = runtimes.open(tmp_path / row["file"])(pixels)
        assert_close(outputs, expected, rtol=2e-5, name=row["file"])
    check_graph(tmp_path / "model.tflite")


@pytest.mark.once
def test_a_note_of_a_tflite_file_is_read_within_bounds(rng, tmp_path):
    path = str(tmp_path / "a.tflite")
    targets.write_litert(serving_model(small_model(rng)), path, 1)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(runtimes.NOTE, bytes(2**26))
    with pytest.raises(ValueError, match=r"task.json must have at most 16,777,216 bytes"):
        runtimes.open(path)


BUILDS = {
    "new": lambda base: base,
    "under a fitted head": lambda base: keras.Model(
        base.input, keras.layers.Dense(4)(base(base.input))
    ),
}


@pytest.mark.parametrize("build", BUILDS)
def test_a_model_is_exported_by_keras(rng, tmp_path, build):
    model, images = BUILDS[build](small_model(rng)), rng.normal(size=(1, 8, 12, 3))
    images = images.astype("float32")
    if "fitted" in build:
        model.compile("sgd", "mse")
        model.fit(images, np.zeros((1, 4)), verbose=0)
    for form, name in KERAS_FORMATS if build == "new" else KERAS_FORMATS[:1]:
        if form == "onnx" and build == "new":  # as any model of Keras
            with pytest.raises(ValueError, match="has never called"):
                model.export(tmp_path / name, format=form, verbose=False)
            model(images)
        model.export(tmp_path / name, format=form, verbose=False)
        assert_close(runtimes.open(tmp_path / name)(images), to_numpy(model(images)))


@pytest.mark.on("torch")
def test_a_program_of_torch_takes_any_batch_and_can_be_cast_and_trained(rng, tmp_path):
    import torch

    model, path = serving_model(small_model(rng)), tmp_path / "model.pt2"
    targets.write_pt2(model, path, None)
    exported = runtimes.open(path)
    assert (exported.input_shape, exported.dtype) == ((8, 12, 3), "uint8")
    assert (exported.num_outputs, exported.batch) == (5, None)
    for count in (1, 2, 7):
        images = rng.integers(0, 256, (count, 8, 12, 3), dtype="uint8")
        assert_close(exported(images), model(images))

    program, images = torch.export.load(path), torch.from_numpy(images)
    assert sum(x.numel() for x in program.state_dict.values()) == model.count_params()
    module = program.module()
    before = module(images)
    half = copy.deepcopy(module).to(torch.bfloat16)(images)
    assert 1e-5 < (half - before).abs().max() < 0.1
    parameters = [p for p in module.parameters() if p.requires_grad]
    assert len(parameters) == len(model.trainable_variables)
    loss = -before[:, 0].log().mean()
    loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in parameters)
    torch.optim.SGD(parameters, 0.01).step()
    assert -module(images)[:, 0].log().mean() < loss
    assert str(ROOT).encode() not in path.read_bytes()


@pytest.mark.once
def test_every_patch_size_is_exported_and_compared_with_the_first(rng, tmp_path):
    flexivit = VisionTransformer(24, 4, 16, 1, 2, 24, num_classes=3, position_cover="patches")
    flexivit.resizing = Resizing("bilinear_antialias", "bilinear_half_pixel")
    randomize(flexivit, rng)
    images = rng.integers(0, 256, (16, 24, 24, 3), dtype="uint8")
    labels = rng.integers(0, 3, 16)
    options = {"formats": ["litert"], "precisions": ["fp32"], "output": "logits"}
    rows = export_patch_sizes(
        flexivit, tmp_path / "out", [4, 8], images=images, labels=labels, **options
    )
    answers = []
    for row, size in zip(rows, (4, 8), strict=True):
        model = with_patch_size(flexivit, size)
        logits = to_numpy(model(model.preprocessing.normalize(images.astype("float32"))))
        served = runtimes.open(tmp_path / f"out/patch_{size}/model.tflite")(images)
        assert_close(served, logits, rtol=2e-5)
        answers.append(logits.argmax(axis=-1))
        assert row["macs"] == inspection.flops(model).macs and row["patch_size"] == size
        assert row["agreement"] == (answers[-1] == answers[0]).mean()
        assert row["accuracy"] == (answers[-1] == labels).mean()
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["patch_sizes"] == rows
    last = (tmp_path / "out/costs.md").read_text().splitlines()[-1].split(" | ")
    assert last[0] == "| 8" and last[1:3] == ["3x3", f"{rows[1]['macs'] / 1e9:.3f}"]
    assert last[3] == f"{rows[1]['agreement']:.2%}"
