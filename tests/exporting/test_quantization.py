"""Fewer bits where they do least harm: files of two layers, one of which bears them badly."""

import numpy as np
import onnx
import pytest

from tests.exporting.integer_products import check_products
from vit_keras.exporting import onnx_files, quantization, sensitivity
from vit_keras.exporting.targets import TARGETS
from vit_keras.runtimes import open_file

pytestmark = pytest.mark.once  # files and numbers, no Keras
INT8, HALF = (TARGETS["onnx"].precisions[precision] for precision in ("int8", "fp16"))


@pytest.fixture(scope="module")
def images():
    x = np.random.default_rng(0).normal(size=(16, 64)).astype("float32")
    x[:, 0] = 0  # what the outliers multiply
    return x


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """relu(x · hard) · easy; outliers in each column of `hard` cost its other values their bits."""
    rng = np.random.default_rng(0)
    hard, easy = rng.normal(size=(2, 64, 64)).astype("float32")
    hard[0] *= 300
    make = onnx.helper.make_node
    nodes = [
        make("MatMul", ["x", "hard"], ["a"], "hard/MatMul"),
        make("Relu", ["a"], ["b"], "relu"),
        make("MatMul", ["b", "easy"], ["c"], "easy/MatMul"),
        make("Mul", ["c", "small"], ["y"], "mul"),
    ]
    path = tmp_path_factory.mktemp("quantize") / "model.onnx"
    write_onnx(path, nodes, hard=hard, easy=easy, small=np.ones(64, "float32"))
    return str(path)


def write_onnx(path, nodes, width=64, **weights):
    """Saves a graph from `x` `(N, width)` to `y` `(N, width)`."""
    kind = onnx.TensorProto.FLOAT
    ends = [onnx.helper.make_tensor_value_info(name, kind, (None, width)) for name in "xy"]
    stored = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def test_integers_of_an_onnx_file_are_exact_where_16_bits_would_overflow(tmp_path):
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(384, 384)).astype("float32")
    weight[:, :192] = 1 + weight[:, :192] / 100  # sums of two products of 8 bits exceed 15 bits
    x = rng.uniform(0.5, 1, (197, 384)).astype("float32")
    node = onnx.helper.make_node("MatMul", ["x", "weight"], ["y"], "product/MatMul")
    write_onnx(tmp_path / "float.onnx", [node], 384, weight=weight)
    quantization.onnx_int8(str(tmp_path / "float.onnx"), str(tmp_path / "int8.onnx"))
    assert check_products(tmp_path / "int8.onnx", x) == 1
    exact = x.astype("float64") @ weight
    error = open_file(tmp_path / "int8.onnx")(x) - exact
    assert np.sqrt(np.mean(error**2)) < 0.01 * np.sqrt(np.mean(exact**2))


def test_the_layer_with_outliers_is_the_most_sensitive(source, images):
    assert quantization.layers(source) == ["hard/MatMul", "easy/MatMul"]
    moved = sensitivity.report(INT8, source, images)
    assert list(moved) == ["hard/MatMul", "easy/MatMul"]
    assert moved["hard/MatMul"] > 2 * moved["easy/MatMul"] > 0


def test_sensitive_layers_are_left_out_until_the_file_bears_it(source, images, tmp_path):
    path, expected = str(tmp_path / "small.onnx"), open_file(source)(images)
    error = lambda p: np.abs(open_file(p)(images) - expected).max() / np.abs(expected).max()
    quantization.onnx_int8(source, path)
    whole = error(path)
    bears = lambda p: error(p) < whole / 2
    excluded, moved = sensitivity.quantise_until(INT8, source, path, bears, images)
    assert excluded == ["hard/MatMul"] and len(moved) == 2 and error(path) < whole / 2
    found = sensitivity.quantise_until(INT8, source, path, lambda p: True, images)
    assert found == ([], {}) and error(path) == whole
    with pytest.raises(ValueError, match=r"small\.onnx loses too much even with 1 of 2 layers"):
        sensitivity.quantise_until(INT8, source, path, lambda p: False, images)


def test_weights_are_stored_in_half(source, images, tmp_path):
    path = str(tmp_path / "half.onnx")
    onnx_files.store_in_half(source, path)
    model = onnx.load(path)
    types = {t.name: onnx.numpy_helper.to_array(t).dtype for t in model.graph.initializer}
    assert types == {"hard/half": "float16", "easy/half": "float16", "small": "float32"}
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(source).graph.initializer}
    hard, easy = (weights[name].astype("float16").astype("float32") for name in ("hard", "easy"))
    expected = np.maximum(images @ hard, 0) @ easy
    np.testing.assert_allclose(open_file(path)(images), expected, rtol=1e-4, atol=1e-2)


def test_weights_that_do_not_bear_half_are_left_out(source, images, tmp_path):
    path, expected = str(tmp_path / "half.onnx"), open_file(source)(images)
    change = lambda p: np.abs(open_file(p)(images) - expected).max()
    onnx_files.store_in_half(source, path)
    whole = change(path)
    changes = []
    bears = lambda p: (changes.append(change(p)), changes[-1] < whole)[1]
    excluded, moved = sensitivity.quantise_until(HALF, source, path, bears, images)
    assert sorted(moved) == sorted(HALF.layers(source)) == ["easy", "hard"]
    assert excluded == [max(moved, key=moved.get)] and changes[0] == whole > changes[-1] > 0
    types = {t.name: onnx.numpy_helper.to_array(t).dtype for t in onnx.load(path).graph.initializer}
    assert types[excluded[0]] == "float32" and "float16" in types.values()


def test_an_operation_that_onnx_lacks_is_written_out(images, tmp_path):
    from scipy.special import erfc

    path = str(tmp_path / "erfc.onnx")
    write_onnx(path, [onnx.helper.make_node("Erfc", ["x"], ["y"], "gelu/Erfc")])
    onnx_files.repair(path)
    np.testing.assert_allclose(open_file(path)(images), erfc(images), atol=1e-5)
