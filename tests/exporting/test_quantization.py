"""Quantized files of two layers, one of which loses much in fewer bits."""

import os

import keras
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.exporting.builds import small_model
from vit_keras import exporting, runtimes
from vit_keras.exporting import for_inference, quantization, targets, tflite_file
from vit_keras.exporting.serving import serving_model
from vit_keras.models import ResNet, preprocessing_of

pytestmark = pytest.mark.once


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


def write_onnx(path, nodes, width=64, opset=17, **weights):
    """Saves a graph from `x` `(N, width)` to `y` `(N, width)`."""
    kind = onnx.TensorProto.FLOAT
    ends = [onnx.helper.make_tensor_value_info(name, kind, (None, width)) for name in "xy"]
    stored = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    opsets = [onnx.helper.make_opsetid("", opset)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def arrays(path):
    return {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def test_onnx_products_are_exact_where_sums_exceed_16_bits(tmp_path):
    """Unsigned weights: where signed ones are multiplied, processors without VNNI saturate."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(384, 384)).astype("float32")
    weight[:, :192] = 1 + weight[:, :192] / 100  # two of these products exceed 15 bits
    x = rng.uniform(0.5, 1, (197, 384)).astype("float32")
    node = onnx.helper.make_node("MatMul", ["x", "weight"], ["y"], "product/MatMul")
    write_onnx(tmp_path / "float.onnx", [node], 384, weight=weight)
    quantization.onnx_int8(str(tmp_path / "float.onnx"), str(tmp_path / "int8.onnx"))
    nodes, stored = onnx.load(tmp_path / "int8.onnx").graph.node, arrays(tmp_path / "int8.onnx")
    (product,) = (node for node in nodes if node.op_type == "MatMulInteger")
    integers, zeros = (stored[name].astype(int) for name in (product.input[1], product.input[3]))
    assert stored[product.input[1]].dtype == "uint8"
    scale = next(value for value in stored.values() if value.shape == (384,) and value.max() < 1)
    np.testing.assert_allclose((integers - zeros) * scale, weight, atol=scale.max() / 2 + 1e-6)
    exact = x.astype("float64") @ weight
    error = runtimes.open(tmp_path / "int8.onnx")(x) - exact
    assert np.sqrt(np.mean(error**2)) < 0.01 * np.sqrt(np.mean(exact**2))


CONVOLUTION = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


@pytest.mark.parametrize("make_int8", [quantization.onnx_int8, quantization.onnx_int8_static])
def test_every_constant_product_is_stored_in_8_bits(tmp_path, make_int8):
    """Gemm with and without a bias and a transpose, convolutions of both kinds, without names."""
    rng, make = np.random.default_rng(0), onnx.helper.make_node
    weights = {name: rng.normal(size=(64, 64)).astype("float32") for name in "abc"}
    weights |= {name: rng.normal(size=(4, 4, 3, 3)).astype("float32") for name in "de"}
    weights |= {"bias": rng.normal(size=64).astype("float32"), "shape": np.array([-1, 4, 4, 4])}
    weights["back"] = np.array([-1, 64])
    nodes = [
        make("Gemm", ["x", "a", "bias"], ["1"]),
        make("Gemm", ["1", "b"], ["2"], transB=1),
        make("MatMul", ["2", "c"], ["3"]),
        make("Reshape", ["3", "shape"], ["4"]),
        make("Conv", ["4", "d"], ["5"], **CONVOLUTION),
        make("ConvTranspose", ["5", "e"], ["6"], **CONVOLUTION),
        make("Reshape", ["6", "back"], ["y"]),
    ]
    source, path = str(tmp_path / "float.onnx"), str(tmp_path / "int8.onnx")
    write_onnx(source, nodes, **weights)
    x = rng.normal(size=(32, 64)).astype("float32")
    expected = runtimes.open(source)(x)
    layers = quantization.layers(source)
    assert len(set(layers)) == 5
    for excluded in ([], layers[:1], layers[3:], layers):
        make_int8(source, path, excluded, x)
        left = sum(weights["abcde"[layers.index(name)]].size for name in excluded)
        stored = arrays(path).values()
        floats = sum(array.size for array in stored if array.dtype == "float32")
        assert floats < left + 64 + 4 * 64 + 8 + 8  # and the bias and the scales
        small = sum(array.size for array in stored if array.itemsize == 1)
        assert small >= 3 * 64**2 + 2 * 144 - left
        error = np.sqrt(np.mean((runtimes.open(path)(x) - expected) ** 2))
        assert error < (0.03 if len(excluded) < 5 else 1e-6) * np.sqrt(np.mean(expected**2))


def test_static_products_read_integers_of_a_symmetric_range(source, images, tmp_path):
    """Each product reads DequantizeLinear alone, and QuantizeLinear has the zero point 0."""
    path = str(tmp_path / "static.onnx")
    quantization.onnx_int8_static(source, path, (), images)
    graph = onnx.load(path).graph
    makers = {name: node.op_type for node in graph.node for name in node.output}
    read = [name for node in graph.node if node.op_type == "MatMul" for name in node.input]
    assert [makers[name] for name in read] == ["DequantizeLinear"] * 4
    stored = arrays(path)
    points = [stored[n.input[2]] for n in graph.node if n.op_type == "QuantizeLinear"]
    assert len(points) == 2 and all(p.dtype == "int8" and p == 0 for p in points)
    scale = next(stored[n.input[1]] for n in graph.node if n.input[0] == "x")
    np.testing.assert_allclose(scale, np.abs(images).max() / 127.5, rtol=0.01)


def test_a_static_file_keeps_what_is_left_in_float32_exact(images, tmp_path):
    """ONNX Runtime 1.31 opens no file of opset 21 in which a Slice reads integers."""
    rng, make = np.random.default_rng(0), onnx.helper.make_node
    weights = {name: rng.normal(size=(64, 64)).astype("float32") for name in "ab"}
    weights |= {"start": np.array([0]), "end": np.array([1])}
    nodes = [
        make("MatMul", ["x", "a"], ["1"], "chosen"),
        make("Slice", ["x", "start", "end"], ["2"], "slice"),
        make("MatMul", ["2", "b"], ["3"], "left"),
        make("Sub", ["1", "1"], ["4"], "nothing"),
        make("Add", ["3", "4"], ["y"], "add"),
    ]
    source, path = str(tmp_path / "float.onnx"), str(tmp_path / "static.onnx")
    write_onnx(source, nodes, opset=21, **weights)
    quantization.onnx_int8_static(source, path, ["left"], images)
    assert [n.op_type for n in onnx.load(path).graph.node].count("QuantizeLinear") == 1
    expected = np.repeat(images[:1] @ weights["b"], len(images), axis=0)
    np.testing.assert_allclose(runtimes.open(path)(images), expected, rtol=1e-4, atol=1e-3)


def test_a_file_that_keeps_its_weights_in_float32_is_not_called_int8(tmp_path):
    """Keras quantizes no standardized filters."""
    model = ResNet(32, (1, 1, 1, 1), 0.5, num_classes=3)
    options = {"formats": ["savedmodel"]}
    with pytest.raises(ValueError, match="saved_model_int8: takes .* must store half of them in 8"):
        exporting.export(model, tmp_path / "out", precisions=["int8"], **options)
    for precision, size in {"fp16": 2, "int8-static16": 1, "int4": 0.5}.items():
        assert quantization.missed(precision, int(size * 10**8), 10**8) is None
        assert quantization.missed(precision, 4 * 10**8, 10**8).startswith("takes 400,000,000 b")


def write_phone(folder):
    """Writes a small model as a TFLite file in float32; returns its path."""
    model = for_inference(small_model(np.random.default_rng(0), 2))
    path = str(folder / "a.tflite")
    targets.write_litert(serving_model(model, "logits"), path, 1)
    return path


def test_a_small_file_is_judged_by_what_its_float32_file_holds(source, tmp_path):
    cases = {source: quantization.onnx_int8, write_phone(tmp_path): quantization.LITERT["int8"]}
    for path, make in cases.items():
        numbers, graph = quantization.contents(path)
        assert 4 * numbers + graph == os.path.getsize(path)
        make(path, small := str(tmp_path / f"small{os.path.splitext(path)[1]}"))
        sizes = numbers, quantization.GROWTH * graph
        assert quantization.missed("int8", os.path.getsize(small), *sizes) is None
    numbers, graph = quantization.contents(source)
    assert numbers == 2 * 64 * 64 + 64
    sizes = os.path.getsize(source), numbers, quantization.GROWTH * graph
    assert quantization.missed("int8", *sizes).startswith("takes 33,")


def test_activations_of_16_bits_lose_less_than_those_of_8(tmp_path):
    """Products, softmax and GELU compute in int16; images and outputs keep their types."""
    floats, path = write_phone(tmp_path), str(tmp_path / "b.tflite")
    images = np.random.default_rng(0).integers(0, 256, (32, 8, 12, 3), dtype="uint8")
    expected, losses = runtimes.open(floats)(images), []
    for make in (quantization.LITERT["int8-static"], quantization.LITERT["int8-static16"]):
        make(floats, path, (), images)
        losses.append(np.sqrt(np.mean((runtimes.open(path)(images) - expected) ** 2)))
    assert losses[1] < losses[0] / 2 < 0.02 * expected.std()
    assert set(tflite_file.float_operations(path)) <= {"CAST"}
    assert tflite_file.float_operations(floats)["FULLY_CONNECTED"] > 4


def test_every_token_of_a_file_for_npus_is_compared(tmp_path):
    rng = np.random.default_rng(0)
    model = small_model(rng, 2)
    model = keras.Model(model.input, model.get_layer("encoder_norm").output)
    images = rng.integers(0, 256, (16, 8, 12, 3), dtype="uint8")
    options = {"formats": ["litert"], "precisions": ["int8-static16"], "output": "features"}
    (row,) = exporting.export(model, tmp_path / "out", images=images, **options)
    tokens = runtimes.open(tmp_path / "out" / row["file"])(images)
    expected = model.predict_on_batch(preprocessing_of(model).normalize(images))
    norms = np.linalg.norm(tokens, axis=-1) * np.linalg.norm(expected, axis=-1)
    cosines = (tokens * expected).sum(axis=-1) / norms
    assert cosines.shape == (16, 7)
    assert row["agreement"] == pytest.approx(cosines.mean(), abs=1e-6) and row["agreement"] > 0.999
    assert row["first_token"] == pytest.approx(cosines[:, 0].mean(), abs=1e-6)
    assert "GELU" not in row["float_operations"] and "BATCH_MATMUL" not in row["float_operations"]


def test_sensitive_layers_are_left_out_until_the_file_is_good_enough(source, images, tmp_path):
    path, expected = str(tmp_path / "small.onnx"), runtimes.open(source)(images)
    error = lambda p: np.abs(runtimes.open(p)(images) - expected).max() / np.abs(expected).max()
    quantization.onnx_int8(source, path)
    whole = error(path)
    is_good = lambda p: error(p) < whole / 2
    excluded = quantization.quantize_until(quantization.onnx_int8, source, path, is_good, images)
    ranking = quantization.rank_layers(quantization.onnx_int8, source, images)
    assert excluded == ["hard/MatMul"] and error(path) < whole / 2
    assert list(ranking) == quantization.layers(source) == ["hard/MatMul", "easy/MatMul"]
    assert ranking["hard/MatMul"] > 2 * ranking["easy/MatMul"] > 0
    good = lambda p: True
    assert quantization.quantize_until(quantization.onnx_int8, source, path, good, images) == []
    assert error(path) == whole
    with pytest.raises(ValueError, match=r"small\.onnx loses too much even with 1 of 2 layers"):
        quantization.quantize_until(quantization.onnx_int8, source, path, lambda p: False, images)


def test_large_weights_are_stored_in_float16(source, images, tmp_path):
    path, weights = str(tmp_path / "half.onnx"), arrays(source)
    quantization.store_in_half(source, path)
    types = {name: array.dtype for name, array in arrays(path).items()}
    assert types == {"hard/float16": "float16", "easy/float16": "float16", "small": "float32"}
    hard, easy = (weights[name].astype("float16").astype("float32") for name in ("hard", "easy"))
    expected = np.maximum(images @ hard, 0) @ easy
    np.testing.assert_allclose(runtimes.open(path)(images), expected, rtol=1e-4, atol=1e-2)
    quantization.store_in_half(source, path, ["hard/MatMul"])
    expected = np.maximum(images @ weights["hard"], 0) @ easy
    np.testing.assert_allclose(runtimes.open(path)(images), expected, rtol=1e-4, atol=1e-2)
    np.testing.assert_array_equal(arrays(path)["hard"], weights["hard"])


def test_products_compute_in_float16(source, images, tmp_path):
    """By ONNX's own evaluator, since ONNX Runtime computes it in float32 on a CPU."""
    path, weights = str(tmp_path / "half.onnx"), arrays(source)
    quantization.compute_in_half(source, path)
    half = lambda x: x.astype("float16")
    inner = np.maximum(half(images) @ half(weights["hard"]), 0)
    expected = (inner @ half(weights["easy"])).astype("float32")
    run = lambda x: ReferenceEvaluator(path).run(None, {"x": x})[0]
    outputs = run(images)
    assert outputs.dtype == "float32" and np.array_equal(outputs, expected)
    np.testing.assert_allclose(runtimes.open(path)(images), expected, rtol=2e-2, atol=0.1)
    quantization.compute_in_half(source, path, ["hard/MatMul"])
    kept = arrays(path)
    assert np.array_equal(kept["hard"], weights["hard"]) and kept["easy"].dtype == "float16"
    rounded = half(images).astype("float32")
    inner = np.maximum(half(rounded @ weights["hard"]), 0)
    np.testing.assert_allclose(run(images), inner @ half(weights["easy"]), rtol=2e-3)
