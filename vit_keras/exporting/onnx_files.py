"""Changes to ONNX files: operations that runtimes lack, and weights in half the bytes."""

import numpy as np

LARGE = 1024  # values; smaller weights stay in float32


def replace_erfc(path) -> None:
    """Replaces Erfc by 1 - Erf in a file. ONNX has no Erfc, but tf2onnx writes it."""
    import onnx

    model = onnx.load(path)
    nodes = []
    for node in model.graph.node:
        if node.op_type != "Erfc":
            nodes.append(node)
            continue
        name = node.output[0]
        one = onnx.numpy_helper.from_array(np.ones((), "float32"), f"{name}/one")
        model.graph.initializer.append(one)
        nodes.append(onnx.helper.make_node("Erf", node.input, [f"{name}/erf"], f"{name}/erf"))
        operands = [f"{name}/one", f"{name}/erf"]
        nodes.append(onnx.helper.make_node("Sub", operands, [name], f"{name}/sub"))
    if len(nodes) != len(model.graph.node):
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        onnx.save(model, path)


def large_weights(source) -> list[str]:
    """The names of the weights that are worth storing in float16."""
    import onnx

    return [tensor.name for tensor in onnx.load(source).graph.initializer if _is_large(tensor)]


def _is_large(tensor):
    import onnx

    return tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) >= LARGE


def store_in_half(source, path, excluded=(), calibration=None) -> None:
    """Stores weights as float16 and casts them back: half the bytes, float32 arithmetic.

    Args:
        source: A float32 ONNX file.
        path: The file to write.
        excluded: Names of weights that stay in float32.
        calibration: Ignored; recipes share their arguments.
    """
    import onnx

    model = onnx.load(source)
    casts, stored = [], []
    for tensor in model.graph.initializer:
        if tensor.name in excluded or not _is_large(tensor):
            stored.append(tensor)
            continue
        value = onnx.numpy_helper.to_array(tensor)
        half = f"{tensor.name}/half"
        stored.append(onnx.numpy_helper.from_array(value.astype("float16"), half))
        to = {"to": onnx.TensorProto.FLOAT}
        casts.append(onnx.helper.make_node("Cast", [half], [tensor.name], f"{half}/cast", **to))
    nodes = [*casts, *model.graph.node]
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend(stored)
    model.graph.node.extend(nodes)
    onnx.save(model, path)
