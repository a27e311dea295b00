"""Reads TFLite files as the tables of their schema, changes them and packs them smaller.

Metadata for MediaPipe and Android Studio (normalization and labels) are written with the numbers of
TensorFlow Lite's metadata_schema.fbs (identifier M001), because the published writers need packages
that conflict with a current TensorFlow.
"""

import collections
import io
import os
import zipfile
from collections.abc import Callable
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

ALIGNMENT = 16  # bytes; TFLite's buffers begin at multiples of it

# The operations that LiteRT's GPU delegate and its compilers for four NPUs leave to the processor,
# according to its sources (google-ai-edge/LiteRT at f674577: `gpu_compatibility.cc` and
# litert/vendors). The GPU delegate cannot cast uint8, the type of the images, so it leaves CAST.
# Operations that are not listed, which image models rarely have, count as left by all.
DELEGATES = ("gpu", "qualcomm", "mediatek", "samsung", "intel")
LEFT_BY = {
    "": (
        "ABS, ADD, AVERAGE_POOL_2D, BATCH_MATMUL, CONCATENATION, CONV_2D, DEPTHWISE_CONV_2D, "
        "DEQUANTIZE, DIV, FULLY_CONNECTED, GELU, GREATER, HARD_SWISH, LEAKY_RELU, LESS, LOGISTIC, "
        "MAXIMUM, MAX_POOL_2D, MEAN, MINIMUM, MUL, PAD, PADV2, QUANTIZE, REDUCE_MAX, RELU, "
        "RESHAPE, RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR, RSQRT, SLICE, SOFTMAX, SPLIT, SQRT, "
        "SQUARED_DIFFERENCE, STRIDED_SLICE, SUB, SUM, TANH, TRANSPOSE, TRANSPOSE_CONV"
    ),
    "gpu": "CAST, L2_NORMALIZATION",
    "mediatek": (
        "COS, CUMSUM, EMBEDDING_LOOKUP, EQUAL, EXP, FLOOR_DIV, GATHER, GREATER_EQUAL, LOG, "
        "LOGICAL_AND, MIRROR_PAD, NOT_EQUAL, POW, REVERSE_V2, SELECT, SELECT_V2, SIN"
    ),
    "samsung": "PRELU",
    "gpu mediatek": "ARG_MAX, BROADCAST_TO, CONV_3D, GATHER_ND, RELU_0_TO_1",
    "mediatek intel": "CEIL, FLOOR, REDUCE_MIN, RELU6, RELU_N1_TO_1, SPACE_TO_DEPTH",
    "mediatek samsung": (
        "DEPTH_TO_SPACE, FLOOR_MOD, LESS_EQUAL, LOGICAL_NOT, LOGICAL_OR, ONE_HOT, PACK, "
        "REDUCE_ALL, SIGN, SQUARE, TILE, TOPK_V2"
    ),
    "gpu mediatek samsung": "UNPACK",
    "mediatek samsung intel": "DYNAMIC_UPDATE_SLICE, ELU, NEG, REDUCE_ANY, ROUND, SPLIT_V",
}


class Builder(flatbuffers.Builder):
    """A builder that writes equal vectors only once.

    The zero points of the 22,000 channels of Ti/16, for instance, are 175 kB of zeros.
    """

    def __init__(self, size: int):
        super().__init__(size)
        self.written: dict[tuple[str, bytes], int] = {}

    def CreateNumpyVector(self, x):
        key = x.dtype.str, x.tobytes()
        if key not in self.written:
            if x.dtype == np.uint8:
                self.Prep(ALIGNMENT, x.nbytes)
            self.written[key] = super().CreateNumpyVector(x)
        return self.written[key]


def read(path: str | os.PathLike) -> schema.ModelT:
    """Reads the tables of a TFLite file, with the data of its buffers inside."""
    with open(path, "rb") as file:
        packed = bytearray(file.read())
    model = schema.ModelT.InitFromPackedBuf(packed, 0)
    for buffer in model.buffers:
        if buffer.offset > 1:  # the data follow the tables, whose length may change
            buffer.data = np.frombuffer(packed, "uint8", buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    return model


def pack(model: schema.ModelT) -> bytes:
    """Packs tables into the bytes of a file, without the names of intermediate tensors."""
    for graph in model.subgraphs:
        ends = {*graph.inputs, *graph.outputs}
        for number, tensor in enumerate(graph.tensors):
            if number not in ends and model.buffers[tensor.buffer].data is None:
                tensor.name = ""
    builder = Builder(sum(len(buffer.data) for buffer in model.buffers if buffer.data is not None))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def operations(
    path: str | os.PathLike, type: int | None = None, graphs: int | None = None
) -> dict[str, int]:
    """Counts the operations of a TFLite file by name.

    Args:
        path: The file.
        type: The `TensorType` that the counted ones return; None for any.
        graphs: How many of the file's graphs to read; None for all.
    """
    model, counts = read(path), collections.Counter[str]()
    names = {code: name for name, code in vars(schema.BuiltinOperator).items()}
    codes = [max(c.builtinCode, c.deprecatedBuiltinCode) for c in model.operatorCodes]
    for graph in model.subgraphs[:graphs]:
        for node in graph.operators:
            if type is None or graph.tensors[node.outputs[0]].type == type:
                counts[names[codes[node.opcodeIndex]]] += 1
    return dict(counts)


def float_operations(path: str | os.PathLike) -> dict[str, int]:
    """Counts the operations of a TFLite file that return float32, except DEQUANTIZE."""
    counts = operations(path, schema.TensorType.FLOAT32)
    return {name: count for name, count in counts.items() if name != "DEQUANTIZE"}


def left_out(path: str | os.PathLike) -> dict[str, dict[str, int]]:
    """Counts the operations that each delegate leaves to the processor, by name.

    A delegate runs what lies between two of them as one program, so that one in each block makes
    the others slow too.

    Returns:
        The counts for each delegate of `DELEGATES`, such as `{"gpu": {"CAST": 1}, "mediatek": {}}`.
    """
    counts = operations(path)
    left_by = {name: who.split() for who, names in LEFT_BY.items() for name in names.split(", ")}
    return {
        delegate: {
            name: counts[name]
            for name in sorted(counts)
            if delegate in left_by.get(name, DELEGATES)
        }
        for delegate in DELEGATES
    }


LABELS = "labels.txt"
# Codes of enumerations in metadata_schema.fbs.
NORMALIZATION, IMAGE_PROPERTIES, FEATURE_PROPERTIES = map(np.uint8, (1, 2, 1))
RGB, GRAYSCALE, AXIS_LABELS = map(np.int8, (1, 2, 2))


def attach(
    path, name: str, class_names, channels: int, normalization=None, description="", outputs=None
):
    """Adds metadata and class names to a TFLite file.

    Args:
        path: The file; changed in place.
        name: The model's name.
        class_names: The classes in the order of the outputs; None for a model of features. An
            output that is neither `(B, K)` nor `(B, H, W, K)` is described as attention, unless
            `outputs` describes it.
        channels: 3 for RGB images, 1 for grayscale.
        normalization: For a model of float images, the mean and std of pixels in [0, 255]: two
            lists of one value, or of one value for each channel.
        description: A description of the output.
        outputs: The descriptions of several outputs by their names in the file's signature; the
            classes belong to the last one.
    """
    model = read(path)
    graph = model.subgraphs[0]
    if outputs:
        names = {o.tensorIndex: o.name.decode() for o in model.signatureDefs[0].outputs}
        called = [names[i] for i in graph.outputs]
        answers = [(n, outputs[n], n == [*outputs][-1]) for n in called]
    else:
        is_answer = [len(graph.tensors[i].shape) in (2, 4) for i in graph.outputs]
        rows = ("attention", None, False), ("output", description, class_names is not None)
        answers = [rows[answer] for answer in is_answer]
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = np.frombuffer(_metadata(name, channels, normalization, answers), "uint8")
    model.buffers.append(buffer)
    entry.name, entry.buffer = "TFLITE_METADATA", len(model.buffers) - 1
    model.metadata = [*(model.metadata or []), entry]
    packed = io.BytesIO(pack(model))
    if class_names is not None:
        packed.seek(0, io.SEEK_END)
        with zipfile.ZipFile(packed, "a", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo(LABELS), "\n".join(class_names))
    with open(path, "wb") as file:
        file.write(packed.getvalue())


def _metadata(name, channels, normalization, answers) -> bytes:
    """Returns TFLite's metadata; a table maps the numbers of its fields to their values."""
    pixels = {0: IMAGE_PROPERTIES, 1: {0: RGB if channels == 3 else GRAYSCALE}}
    image = {0: "image", 3: pixels}
    if normalization is not None:
        image[4] = [{0: NORMALIZATION, 1: dict(enumerate(map(np.float32, normalization)))}]
    outputs = []
    for output, description, has_labels in answers:
        about = {1: description, 3: {0: FEATURE_PROPERTIES, 1: {}}}
        labels = {6: [{0: LABELS, 2: AXIS_LABELS}]}
        described = about if description is not None else {}
        outputs.append({0: output} | described | (labels if has_labels else {}))
    builder = flatbuffers.Builder(0)
    whole = {0: name, 3: [{2: [image], 3: outputs}], 7: "1.0.0"}
    builder.Finish(_written(builder, whole), b"M001")
    return bytes(builder.Output())


def _written(builder, value) -> int:
    """Writes a text, an array, a list of tables, or a table; returns its offset."""
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, np.ndarray):
        return builder.CreateNumpyVector(value)
    if isinstance(value, list):
        places = [_written(builder, table) for table in value]
        builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            builder.PrependUOffsetTRelative(place)
        return builder.EndVector()
    add: dict[Any, Callable] = {
        np.uint8: builder.PrependUint8Slot,
        np.int8: builder.PrependInt8Slot,
    }
    fields = {n: v if type(v) in add else _written(builder, v) for n, v in value.items()}
    builder.StartObject(max(fields, default=-1) + 1)
    for number, field in fields.items():
        add.get(type(field), builder.PrependUOffsetTRelativeSlot)(number, field, 0)
    return builder.EndObject()
