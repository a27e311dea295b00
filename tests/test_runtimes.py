"""Exported files in their runtimes."""

import numpy as np
import pytest

from tests.exporting.builds import small_model
from tests.helpers import assert_close
from tests.reference import softmax
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


@pytest.mark.once
def test_files_without_a_runtime_are_refused():
    with pytest.raises(
        ValueError, match=r"an existing \.tflite, \.onnx, \.xml, \.pt2, \.pte file or the"
    ):
        runtimes.open("model.mlpackage")
