"""Counts the weights of each type in an exported file of any format."""

import collections
import math
import os
import pathlib
import xml.etree.ElementTree

# Bits per weight, by the formats' names of types. Wider integers are not weights.
BITS = {"float32": 32, "f32": 32, "float16": 16, "f16": 16, "int8": 8, "uint8": 8, "int4": 4}
PRECISIONS = {"fp16": 16, "fp16-compute": 16, "int8": 8, "int4": 4}
PRECISIONS |= {"int8-static": 8, "int8-static16": 8}
LEAST_SHARE = 0.5


def count_weights(path: str | os.PathLike) -> dict[int, int] | None:
    """Counts the weights in a file.

    Args:
        path: A SavedModel, or a TFLite, ONNX or OpenVINO file.

    Returns:
        `{bits: number of weights}`, or None for other formats.

    Example:
        ```python
        count_weights("files/model_int8.onnx")  # {32: 12_345, 8: 5_678_901}
        ```
    """
    path, counts = pathlib.Path(path), collections.Counter[int]()
    if path.suffix not in READERS:
        return None
    for name, shape in READERS[path.suffix](path):
        counts[BITS.get(name, 0)] += math.prod(shape)
    return {bits: number for bits, number in counts.items() if bits}


def missed(precision: str, path: str | os.PathLike) -> str | None:
    """Says in numbers if a file of fewer bits stores too many weights in more bits; else None."""
    bits = PRECISIONS.get(precision, 32)
    counts = count_weights(path) if bits < 32 else None
    total = sum((counts or {}).values())
    small = sum(number for size, number in (counts or {}).items() if size <= bits)
    if small >= LEAST_SHARE * total:
        return None
    return (
        f"stores {small:,} of {total:,} weights in {bits} bits. A file called {precision} needs "
        f"{LEAST_SHARE:.0%}"
    )


def _saved_model(path):
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    types, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()
    return [(types[n].name, shapes[n]) for n in shapes if n.startswith("variables/")]  # once each


def _tflite(path):
    from ai_edge_litert import schema_py_generated as schema

    from vit_keras.exporting import tflite_file

    names = {code: name.lower() for name, code in vars(schema.TensorType).items()}
    model = tflite_file.read(path)
    tensors = (tensor for graph in model.subgraphs for tensor in graph.tensors)
    stored = [t for t in tensors if model.buffers[t.buffer].data is not None]
    return [(names[t.type], () if t.shape is None else map(int, t.shape)) for t in stored]


def _onnx(path):
    import onnx

    name = lambda tensor: onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).name
    graph = onnx.load(path).graph
    pairs = {node.input[1] for node in graph.node if node.op_type == "MatMulNBits"}  # in a byte
    return [
        ("int4", (2, *tensor.dims)) if tensor.name in pairs else (name(tensor), tensor.dims)
        for tensor in graph.initializer
    ]


def _openvino(path):
    constants = xml.etree.ElementTree.parse(path).iterfind("layers/layer[@type='Const']/data")
    shape = lambda data: [int(size) for size in data.get("shape").split(",") if size.strip()]
    return [(data.get("element_type"), shape(data)) for data in constants]


READERS = {"": _saved_model, ".tflite": _tflite, ".onnx": _onnx, ".xml": _openvino}
