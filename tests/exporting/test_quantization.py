"""Quantized files of two layers, one of which loses much in fewer bits."""

import numpy as np
import onnx
import pytest

from tests.exporting.integer_products import check_products
from tests.helpers import assert_close
from vit_keras.exporting import onnx_files, quantization, sensitivity
from vit_keras.exporting.targets import TARGETS
from vit_keras.runtimes import open_file

pytestmark = pytest.mark.once  # no Keras
INT8, HALF = (TARGETS["onnx"].precisions[precision] for precision in ("int8", "fp16"))


@pytest.fixture(scope="module")
def images():
    x = np.random.default_rng(0).normal(size=(16, 64)).astype("float32")
    x[:, 0] = 0  # multiplied by the outliers of `hard`
    return x


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """relu(x · hard) · easy, where an outlier in each column of `hard` sets the column's scale."""
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


def test_onnx_products_are_exact_where_sums_exceed_16_bits(tmp_path):
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(384, 384)).astype("float32")
    weight[:, :192] = 1 + weight[:, :192] / 100  # two of these products exceed 15 bits
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
    ranking = sensitivity.rank_layers(INT8, source, images)
    assert list(ranking) == ["hard/MatMul", "easy/MatMul"]
    assert ranking["hard/MatMul"] > 2 * ranking["easy/MatMul"] > 0


def test_sensitive_layers_are_left_out_until_the_file_is_good_enough(source, images, tmp_path):
    path, expected = str(tmp_path / "small.onnx"), open_file(source)(images)
    error = lambda p: np.abs(open_file(p)(images) - expected).max() / np.abs(expected).max()
    quantization.onnx_int8(source, path)
    whole = error(path)
    is_good = lambda p: error(p) < whole / 2
    excluded, ranking = sensitivity.quantize_until(INT8, source, path, is_good, images)
    assert excluded == ["hard/MatMul"] and len(ranking) == 2 and error(path) < whole / 2
    result = sensitivity.quantize_until(INT8, source, path, lambda p: True, images)
    assert result == ([], {}) and error(path) == whole
    with pytest.raises(ValueError, match=r"small\.onnx loses too much even with 1 of 2 layers"):
        sensitivity.quantize_until(INT8, source, path, lambda p: False, images)


def test_large_weights_are_stored_in_float16(source, images, tmp_path):
    path = str(tmp_path / "half.onnx")
    onnx_files.store_in_half(source, path)
    model = onnx.load(path)
    types = {t.name: onnx.numpy_helper.to_array(t).dtype for t in model.graph.initializer}
    assert types == {"hard/half": "float16", "easy/half": "float16", "small": "float32"}
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(source).graph.initializer}
    hard, easy = (weights[name].astype("float16").astype("float32") for name in ("hard", "easy"))
    expected = np.maximum(images @ hard, 0) @ easy
    np.testing.assert_allclose(open_file(path)(images), expected, rtol=1e-4, atol=1e-2)


def test_weights_that_lose_too_much_in_float16_stay_in_float32(source, images, tmp_path):
    path, expected = str(tmp_path / "half.onnx"), open_file(source)(images)
    change = lambda p: np.abs(open_file(p)(images) - expected).max()
    onnx_files.store_in_half(source, path)
    whole = change(path)
    changes = []
    is_good = lambda p: (changes.append(change(p)), changes[-1] < whole)[1]
    excluded, ranking = sensitivity.quantize_until(HALF, source, path, is_good, images)
    assert sorted(ranking) == sorted(HALF.layers(source)) == ["easy", "hard"]
    assert excluded == [max(ranking, key=ranking.get)] and changes[0] == whole > changes[-1] > 0
    types = {t.name: onnx.numpy_helper.to_array(t).dtype for t in onnx.load(path).graph.initializer}
    assert types[excluded[0]] == "float32" and "float16" in types.values()


def test_erfc_is_replaced_by_erf(images, tmp_path):
    from scipy.special import erfc

    path = str(tmp_path / "erfc.onnx")
    write_onnx(path, [onnx.helper.make_node("Erfc", ["x"], ["y"], "gelu/Erfc")])
    onnx_files.finish(path)
    assert_close(open_file(path)(images), erfc(images))
