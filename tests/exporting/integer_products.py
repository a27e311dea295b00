"""Exact integer arithmetic in NumPy for the quantized products of an ONNX file."""

import numpy as np
import onnx
import onnxruntime

from tests.helpers import assert_close


def check_products(path, images, rtol=1e-5):
    """Compares each product that ONNX Runtime computes with the exact one of the same operands.

    Returns the number of products. Each is compared on the activations that ONNX Runtime itself
    feeds to it, so that no rounding before it matters. Signed weights must leave two neighboring
    terms within 16 bits, where processors without VNNI saturate, whatever this processor does.
    """
    model = onnx.load(path)
    products = _products(model.graph)
    values = _run(model, images, {name for x, y, *_ in products for name in (x, y)})
    for x, y, weight, zero, scale in products:
        if weight.dtype == "int8":
            magnitudes = np.abs(np.pad(weight.astype(int), ((0, len(weight) % 2), (0, 0))))
            assert (255 * (magnitudes[::2] + magnitudes[1::2])).max() < 2**15, y
        expected = exact_product(values[x], weight, zero, scale)
        assert_close(values[y], expected, rtol, y)
    return len(products)


def exact_product(x, weight, zero, scale):
    """DynamicQuantizeLinear, MatMulInteger, Cast and Mul of the ONNX standard, in 64 bits.

    Takes activations `(..., D)` float32, `weight` `(D, K)`, its `zero` points and `scale` `(K,)`.
    """
    low, high = min(x.min(), 0), max(x.max(), 0)
    x_scale = np.float32(high - low) / np.float32(255)
    x_zero = np.clip(np.rint(-low / x_scale), 0, 255)
    integers = np.clip(np.rint(x / x_scale) + x_zero, 0, 255).astype("int64") - int(x_zero)
    total = np.matmul(integers, weight.astype("int64") - zero.astype("int64"))  # (..., K)
    return total * (np.float64(x_scale) * scale)


def _products(graph):
    """Names of input and output, weight, zero points and scales of each quantized product."""
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    reader = lambda name: next(node for node in graph.node if name in node.input)
    products = []
    for node in graph.node:
        if node.op_type != "MatMulInteger":
            continue
        x, weight, x_zero, zero = node.input
        quantizer = makers[x]
        assert quantizer.op_type == "DynamicQuantizeLinear" and x_zero == quantizer.output[2]
        cast = reader(node.output[0])
        rescale = reader(cast.output[0])
        (scales,) = (makers[name] for name in rescale.input if name != cast.output[0])
        (scale,) = (constants[name] for name in scales.input if name in constants)
        assert [n.op_type for n in (cast, rescale, scales)] == ["Cast", "Mul", "Mul"]
        product = (quantizer.input[0], rescale.output[0], constants[weight], constants[zero], scale)
        products.append(product)
    return products


def _run(model, images, names):
    """What ONNX Runtime computes under `names`, which become outputs of the graph."""
    known = {value.name for value in (*model.graph.input, *model.graph.output)}
    for name in sorted(names - known):
        kind = onnx.TensorProto.FLOAT
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, None))
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    source = session.get_inputs()[0].name
    outputs = [output.name for output in session.get_outputs()]
    return {source: images, **dict(zip(outputs, session.run(outputs, {source: images})))}
