"""Small models to export, and their files."""

from tests.helpers import randomize
from vit_keras import exporting
from vit_keras.models import VisionTransformer


def small_model(rng, num_layers=1, **arguments):
    """A Vision Transformer with random weights, for images (8, 12, 3) and 5 classes."""
    return randomize(VisionTransformer((8, 12), 4, 12, num_layers, 3, 20, 5, **arguments), rng)


def export_files(model, folder, images, **options):
    """Exports a SavedModel, a TFLite and an ONNX file in float32; returns their rows."""
    options = {"formats": ["savedmodel", "litert", "onnx"], **options}
    return exporting.export(model, folder, images=images, precisions=["fp32"], **options)


def onnx_means(path, kind, batch=None, side=8):
    """Writes an ONNX file that gives the mean of each channel, for uint8 or float images."""
    import onnx

    helper, types = onnx.helper, onnx.TensorProto
    nodes = [
        helper.make_node("Cast", ["images"], ["x"], to=types.FLOAT),
        helper.make_node("ReduceMean", ["x"], ["y"], axes=[1, 2], keepdims=0),
    ]
    images = helper.make_tensor_value_info("images", kind, [batch or "N", side, side, 3])
    means = helper.make_tensor_value_info("y", types.FLOAT, [batch or "N", 3])
    graph = helper.make_graph(nodes, "g", [images], [means])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


def check_graph(path):
    """GPU and NPU delegates take tensors of up to four axes, and neither of these operators."""
    from ai_edge_litert import schema_py_generated as schema

    from vit_keras.exporting import tflite_file

    model = tflite_file.read(path)
    (graph,) = model.subgraphs
    shapes = [[] if tensor.shape is None else tensor.shape for tensor in graph.tensors]
    assert max(map(len, shapes)) <= 4
    codes = {max(code.builtinCode, code.deprecatedBuiltinCode) for code in model.operatorCodes}
    assert not codes & {schema.BuiltinOperator.BROADCAST_TO, schema.BuiltinOperator.GATHER_ND}
    assert schema.TensorType.INT64 not in {tensor.type for tensor in graph.tensors}
