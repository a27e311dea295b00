"""Changes ONNX files: replaces operations that runtimes lack, and stores weights in fewer bits."""

import numpy as np

AXES = ("batch", "height", "width", "channels")
LARGE = 1024  # values; smaller weights stay in float32
KERNEL_AXES = {"Conv": 0, "ConvTranspose": 1}  # the axis of a kernel's outputs


def finish(path) -> None:
    """Makes a file of torch's exporter run everywhere; drops what it reveals of this machine."""
    import onnx

    model = onnx.load(path)
    graph = model.graph
    for place, node in reversed([*enumerate(graph.node)]):
        if node.op_type == "MaxPool":
            # ONNX Runtime 1.31 would join the pool with an earlier Pad, also across a Transpose,
            # and pad with the lowest number instead of zeros. A Max, which changes nothing, lies
            # between them.
            name = node.input[0]
            lowest = onnx.numpy_helper.from_array(np.array(-3e38, "float32"), f"{name}/lowest")
            graph.initializer.append(lowest)
            node.input[0] = f"{name}/kept"
            kept = onnx.helper.make_node("Max", [name, lowest.name], [node.input[0]])
            graph.node.insert(place, kept)
    for value in (*graph.input, *graph.output):
        for axis, name in zip(value.type.tensor_type.shape.dim, AXES):
            if not axis.dim_value:
                axis.dim_param = name
    for described in (graph, *graph.node, *graph.input, *graph.output):
        del described.metadata_props[:]
    del graph.value_info[:]  # names axes differently; runtimes infer it again
    onnx.save(model, path)


def read_named(source):
    """Reads a file, and gives a name to each node that has none."""
    import onnx

    model = onnx.load(source)
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    return model


def store_kernels_in_int8(model, names) -> None:
    """Stores kernels of convolutions in int8, one scale per output; computes in float32.

    Args:
        model: An ONNX model; changed in place.
        names: The names of the convolutions; other nodes are unchanged.
    """
    import onnx

    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    for node in [n for n in graph.node if n.name in names and n.op_type in KERNEL_AXES]:
        axis, kernel = KERNEL_AXES[node.op_type], onnx.numpy_helper.to_array(weights[node.input[1]])
        others = tuple(i for i in range(kernel.ndim) if i != axis)
        scale = np.maximum(np.abs(kernel).max(axis=others, keepdims=True), 1e-30) / 127
        arrays = np.rint(kernel / scale).astype("int8"), scale.ravel().astype("float32")
        stored = [f"{node.name}/int8", f"{node.name}/scale"]
        graph.initializer.extend(map(onnx.numpy_helper.from_array, arrays, stored))
        node.input[1] = f"{node.name}/kernel"
        back = onnx.helper.make_node("DequantizeLinear", stored, [node.input[1]], axis=axis)
        back.name = f"{node.name}/dequantize"
        graph.node.insert(0, back)


def read_floats(path, chosen) -> None:
    """Lets only the nodes in `chosen` read quantized activations, in a file with QuantizeLinear.

    The quantizer connects them to every node that reads the tensor. That rounds what should stay
    in float32, and after a Slice, ONNX Runtime 1.31 quantizes again and mixes int8 with uint8.
    """
    import onnx

    model = onnx.load(path)
    makers = {name: node for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        for place, name in enumerate(node.input if node.name not in chosen else ()):
            back = makers.get(name)
            if back and back.op_type == "DequantizeLinear" and back.input[0] in makers:
                node.input[place] = makers[back.input[0]].input[0]
    onnx.save(model, path)


def store_in_half(source, path, excluded=(), calibration=None) -> None:
    """Stores weights as float16 and casts them back: half the bytes, float32 arithmetic.

    Args:
        source: A float32 ONNX file.
        path: The file to write.
        excluded: Names of nodes whose weights stay in float32.
        calibration: Ignored; all writers have the same arguments.
    """
    import onnx

    model = read_named(source)
    kept = {name for node in model.graph.node if node.name in excluded for name in node.input}
    casts, stored = [], []
    for tensor in model.graph.initializer:
        is_float = tensor.data_type == onnx.TensorProto.FLOAT
        if not is_float or np.prod(tensor.dims) < LARGE or tensor.name in kept:
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


def compute_in_half(source, path, excluded=(), calibration=None) -> None:
    """Stores weights as float16 and computes in float16; a CPU casts them back at each operation.

    Args:
        source: A float32 ONNX file.
        path: The file to write. Its inputs and outputs keep their types.
        excluded: Names of nodes that compute in float32.
        calibration: Ignored; all writers have the same arguments.
    """
    import onnx
    from onnxruntime.transformers import float16, onnx_model

    half = float16.convert_float_to_float16(
        read_named(source), keep_io_types=True, node_block_list=[*excluded]
    )
    onnx_model.OnnxModel(half).topological_sort()
    onnx.save(half, path)
