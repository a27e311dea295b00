"""TFLite files that are written again have the same outputs and fewer bytes."""

import os

import numpy as np
import pytest

from tests.helpers import randomize
from vit_keras import runtimes
from vit_keras.exporting import for_inference, quantization, tflite_file
from vit_keras.exporting.serving import serving_model
from vit_keras.exporting.targets import write_litert
from vit_keras.models import from_variant

pytestmark = [pytest.mark.once, pytest.mark.on("tensorflow")]


@pytest.mark.nightly
def test_the_tiny_model_in_int8_takes_six_megabytes(rng, tmp_path):
    model = randomize(from_variant("Ti/16", image_size=224, num_classes=1000), rng, scale=0.02)
    whole, small = tmp_path / "whole.tflite", tmp_path / "small.tflite"
    write_litert(serving_model(for_inference(model), "logits"), whole, 1)
    quantization.litert_int8(whole, small)
    images = rng.integers(0, 256, (2, 224, 224, 3), dtype="uint8")
    expected, before = runtimes.open(small)(images), small.stat().st_size
    tflite_file.attach(small, "Ti/16", [f"class number {i}" for i in range(1000)], 3)
    assert os.path.getsize(small) <= 6.1e6 < before
    np.testing.assert_array_equal(runtimes.open(small)(images), expected)
    graph = tflite_file.read(small).subgraphs[0]
    zeros = [t.quantization.zeroPoint for t in graph.tensors if t.quantization is not None]
    counts = [len(z) for z in zeros if z is not None]
    assert sum(counts) == 21928 and max(counts) == 1000  # one for each channel, as before
