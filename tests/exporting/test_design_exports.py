"""Every family's design computes for inference, and in other runtimes, what its model computes."""

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.designs import DESIGNS, images_for, random_design
from tests.exporting.builds import export_files
from tests.helpers import assert_close
from vit_keras import runtimes
from vit_keras.exporting import for_inference, tflite_file
from vit_keras.models import HybridViT, attention_maps

# One has most options, the other windows; `make nightly` exports the others too.
EXPORTED = ("DINOv3", "ViTDet")
SQUARES = {"SQUARE": 7}  # of normalizations by the root mean square


@pytest.mark.nightly_on("jax")  # which writes no files
@pytest.mark.parametrize("name", DESIGNS)
def test_logits_stay_the_same_for_inference(name):
    model = random_design(name)
    images = images_for(model)
    expected = model.predict_on_batch(images)
    assert np.abs(expected).max() > 0.3  # far from the zeros of an untrained head
    rewritten = for_inference(model)
    assert_close(rewritten.predict_on_batch(images), expected)


@pytest.mark.on("torch")
@pytest.mark.parametrize("name", ["BEiT", "DINOv3"])
def test_attention_of_blocks_with_positions_is_an_output(name):
    """The rollout of the rewritten blocks is the product of the model's own attention."""
    model = random_design(name)
    images = images_for(model)
    maps = attention_maps(model).predict_on_batch(images)  # (B, L, H, N, N)
    flow = 0.5 * (np.eye(maps.shape[-1]) + maps.mean(axis=2))
    expected = (flow[:, 1] @ flow[:, 0])[:, 0, -12:].reshape(-1, 3, 4)
    rollout = for_inference(model, with_attention=True).predict_on_batch(images)[1]
    assert_close(rollout, expected)


@pytest.mark.once
@pytest.mark.parametrize(
    "name",
    [n if n in EXPORTED else pytest.param(n, marks=pytest.mark.nightly) for n in DESIGNS],
)
def test_files_answer_in_their_runtimes_as_keras_does(name, tmp_path):
    model = random_design(name)
    pixels = np.random.default_rng(6).integers(0, 256, (2, *model.input_shape[1:]), dtype="uint8")
    expected = model.predict_on_batch(model.preprocessing.normalize(pixels.astype("float32")))
    rows = export_files(model, tmp_path, pixels, output="logits", formats=["litert", "onnx"])
    assert [row["format"] for row in rows] == ["litert", "onnx"]
    for row in rows:
        outputs = runtimes.open(tmp_path / row["file"])(pixels)
        assert_close(outputs, expected, rtol=2e-5, name=row["file"])
    check_graph(tmp_path / "model.tflite")
    others = {"mediatek": SQUARES, "samsung": SQUARES} if name == "ViT-22B" else {}
    none = {delegate: {} for delegate in tflite_file.DELEGATES}
    assert tflite_file.left_out(tmp_path / "model.tflite") == none | {"gpu": {"CAST": 1}} | others


@pytest.mark.once
@pytest.mark.nightly
def test_files_of_convolutions_are_for_delegates_too(tmp_path):
    sizes = {"hidden_size": 12, "num_layers": 1, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}
    model = HybridViT(32, (1, 1), 0.5, 1, **sizes)
    pixels = np.zeros((2, 32, 32, 3), "uint8")
    export_files(model, tmp_path, pixels, output="logits", formats=["litert"])
    check_graph(tmp_path / "model.tflite")


def check_graph(path):
    """GPU and NPU delegates take tensors of up to four axes, and neither of these operators."""
    model = tflite_file.read(path)
    (graph,) = model.subgraphs
    shapes = [[] if tensor.shape is None else tensor.shape for tensor in graph.tensors]
    assert max(map(len, shapes)) <= 4
    codes = {max(code.builtinCode, code.deprecatedBuiltinCode) for code in model.operatorCodes}
    assert not codes & {schema.BuiltinOperator.BROADCAST_TO, schema.BuiltinOperator.GATHER_ND}
    assert schema.TensorType.INT64 not in {tensor.type for tensor in graph.tensors}
