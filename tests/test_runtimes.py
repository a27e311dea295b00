"""Exported files in their runtimes."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.exporting.builds import small_model, softmax
from tests.helpers import assert_close
from vit_keras import runtimes
from vit_keras.exporting import for_inference, targets
from vit_keras.exporting.serving import serving_model


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A `.pt2` file that takes any number of images, and the model that it holds."""
    model = small_model(np.random.default_rng(0))
    path = tmp_path_factory.mktemp("runtimes") / "model.pt2"
    targets.write_pt2(serving_model(for_inference(model)), path, None)
    return path, model


@pytest.mark.on("torch")
def test_a_torch_program_answers_any_batch_as_keras_does(program, rng):
    path, model = program
    exported = runtimes.open(path)
    assert (exported.input_shape, exported.dtype) == ((8, 12, 3), "uint8")
    assert (exported.num_outputs, exported.batch) == (5, None)
    for count in (1, 2, 7):
        images = rng.integers(0, 256, (count, 8, 12, 3), dtype="uint8")
        expected = softmax(model.predict_on_batch((images / 127.5 - 1).astype("float32")))
        assert_close(exported(images), expected)


@pytest.mark.on("torch")
def test_the_program_times_files_without_keras(program, tmp_path):
    path, _ = program
    np.save(tmp_path / "images.npy", np.zeros((1, 8, 12, 3), "uint8"))
    command = [sys.executable, "-P", runtimes.__file__, "1", tmp_path / "images.npy", path]
    process = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    (milliseconds,) = json.loads(process.stdout.splitlines()[-1]).values()
    assert milliseconds > 0


@pytest.mark.once
def test_files_without_a_runtime_are_refused():
    with pytest.raises(ValueError, match=r"an existing \.tflite, \.onnx, \.xml, \.pt2 file or the"):
        runtimes.open("model.mlpackage")


@pytest.mark.once
@pytest.mark.parametrize(
    ("suffix", "module", "package", "extra"),
    [
        (".tflite", "ai_edge_litert.interpreter", "ai-edge-litert", "runtimes"),
        (".onnx", "onnxruntime", "onnxruntime", "runtimes"),
        (".xml", "openvino", "openvino", "openvino"),
        (".pt2", "torch", "torch", "torch"),
        (runtimes.SAVED_MODEL, "tensorflow", "tensorflow", "tensorflow"),
    ],
)
def test_a_missing_runtime_is_named_with_its_extra(
    tmp_path, monkeypatch, suffix, module, package, extra
):
    root = module.partition(".")[0]
    for name in (root, module):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    monkeypatch.setattr("vit_keras.support.extras.is_installed", lambda name: name != root)
    path = tmp_path / f"model{suffix}"
    if suffix == runtimes.SAVED_MODEL:
        path.mkdir()
        (path / "saved_model.pb").write_bytes(b"")
    else:
        path.write_bytes(b"")
    message = rf'^Reading .* needs {package}: pip install "vit-keras\[{extra}\]"$'
    with pytest.raises(ImportError, match=message):
        runtimes.open(path)
