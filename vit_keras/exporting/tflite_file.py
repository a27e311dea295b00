"""Reads TFLite files as the tables of their schema, changes them and packs them smaller.

Metadata for MediaPipe and Android Studio (normalization and labels) are written with the numbers of
TensorFlow Lite's metadata_schema.fbs (identifier M001), because the published writers need packages
that conflict with a current TensorFlow.
"""

import collections
import io
import os
import zipfile

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

ALIGNMENT = 16  # bytes; TFLite's buffers begin at multiples of it

# What LiteRT's GPU delegate and its compilers for four NPUs take, by the lists in its sources
# (google-ai-edge/LiteRT at f674577: `gpu_compatibility.cc` and litert/vendors). The GPU delegate
# casts no uint8, the type of the images, so it has no CAST here.
ALL_TAKE = (
    "ABS, ADD, AVERAGE_POOL_2D, BATCH_MATMUL, CONCATENATION, CONV_2D, DEPTHWISE_CONV_2D, "
    "DEQUANTIZE, DIV, FULLY_CONNECTED, GELU, GREATER, HARD_SWISH, LEAKY_RELU, LESS, LOGISTIC, "
    "MAXIMUM, MAX_POOL_2D, MEAN, MINIMUM, MUL, PAD, PADV2, QUANTIZE, REDUCE_MAX, RELU, RESHAPE, "
    "RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR, RSQRT, SLICE, SOFTMAX, SPLIT, SQRT, "
    "SQUARED_DIFFERENCE, STRIDED_SLICE, SUB, SUM, TANH, TRANSPOSE, TRANSPOSE_CONV"
)
DELEGATES = {
    "gpu": (
        "ADD_N, ATAN2, BITCAST, CEIL, COS, CUMSUM, DENSIFY, DEPTH_TO_SPACE, DYNAMIC_UPDATE_SLICE, "
        "ELU, EMBEDDING_LOOKUP, EQUAL, EXP, FLOOR, FLOOR_DIV, FLOOR_MOD, GATHER, GREATER_EQUAL, "
        "LESS_EQUAL, LOG, LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR, LSTM, MIRROR_PAD, NEG, NOT_EQUAL, "
        "ONE_HOT, PACK, POW, PRELU, REDUCE_ALL, REDUCE_ANY, REDUCE_MIN, REDUCE_PROD, RELU6, "
        "RELU_N1_TO_1, REVERSE_V2, RIGHT_SHIFT, ROUND, SELECT, SELECT_V2, SIGN, SIN, "
        "SPACE_TO_DEPTH, SPLIT_V, SQUARE, STABLEHLO_BROADCAST_IN_DIM, STABLEHLO_CBRT, "
        "STABLEHLO_CLAMP, STABLEHLO_REMAINDER, STABLEHLO_SHIFT_LEFT, TILE, TOPK_V2"
    ),
    "qualcomm": (
        "ARG_MAX, ARG_MIN, BATCH_TO_SPACE_ND, BROADCAST_TO, CAST, CEIL, CONV_3D, COS, CUMSUM, "
        "DEPTH_TO_SPACE, DYNAMIC_UPDATE_SLICE, ELU, EMBEDDING_LOOKUP, EQUAL, EXP, FLOOR, "
        "FLOOR_DIV, FLOOR_MOD, GATHER, GATHER_ND, GREATER_EQUAL, L2_NORMALIZATION, L2_POOL_2D, "
        "LESS_EQUAL, LOG, LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR, MIRROR_PAD, NEG, NOT_EQUAL, "
        "ONE_HOT, PACK, POW, PRELU, REDUCE_ALL, REDUCE_ANY, REDUCE_MIN, RELU6, RELU_0_TO_1, "
        "RELU_N1_TO_1, REVERSE_V2, ROUND, SELECT, SELECT_V2, SIGN, SIN, SPACE_TO_BATCH_ND, "
        "SPACE_TO_DEPTH, SPLIT_V, SQUARE, TILE, TOPK_V2, UNPACK"
    ),
    "mediatek": "CAST, L2_NORMALIZATION, PRELU",
    "samsung": (
        "ARG_MAX, BROADCAST_TO, CAST, CEIL, CONV_3D, COS, CUMSUM, EMBEDDING_LOOKUP, EQUAL, EXP, "
        "FLOOR, FLOOR_DIV, GATHER, GATHER_ND, GREATER_EQUAL, L2_NORMALIZATION, LOG, LOGICAL_AND, "
        "MIRROR_PAD, NOT_EQUAL, POW, REDUCE_MIN, RELU6, RELU_0_TO_1, RELU_N1_TO_1, REVERSE_V2, "
        "SELECT, SELECT_V2, SIN, SPACE_TO_DEPTH"
    ),
    "intel": (
        "ARG_MAX, BROADCAST_TO, CAST, CONV_3D, COS, CUMSUM, DEPTH_TO_SPACE, EMBEDDING_LOOKUP, "
        "EQUAL, EXP, EXPAND_DIMS, FLOOR_DIV, FLOOR_MOD, GATHER, GATHER_ND, GREATER_EQUAL, "
        "L2_NORMALIZATION, LESS_EQUAL, LOG, LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR, MIRROR_PAD, "
        "NOT_EQUAL, ONE_HOT, PACK, POW, PRELU, RANGE, REDUCE_ALL, RELU_0_TO_1, REVERSE_V2, "
        "SELECT, SELECT_V2, SIGN, SIN, SQUARE, TILE, TOPK_V2, UNPACK"
    ),
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
    counts, common = operations(path), set(ALL_TAKE.split(", "))
    return {
        delegate: {name: counts[name] for name in sorted({*counts} - common - {*more.split(", ")})}
        for delegate, more in DELEGATES.items()
    }


LABELS = "labels.txt"
# Slots and codes in metadata_schema.fbs.
NORMALIZATION, IMAGE_PROPERTIES, FEATURE_PROPERTIES, RGB, GRAYSCALE, LABEL_FILE = 1, 2, 1, 1, 2, 2


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
    has_labels = class_names is not None
    if outputs:
        names = {o.tensorIndex: o.name.decode() for o in model.signatureDefs[0].outputs}
        called = [names[i] for i in graph.outputs]
        answers = [(n, outputs[n], n == [*outputs][-1]) for n in called]
    else:
        is_answer = [len(graph.tensors[i].shape) in (2, 4) for i in graph.outputs]
        rows = ("attention", None, False), ("output", description, has_labels)
        answers = [rows[answer] for answer in is_answer]
    described = _describe(name, channels, normalization, answers)
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = np.frombuffer(described, "uint8")
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


def _describe(name, channels, normalization, answers) -> bytes:
    b = flatbuffers.Builder(0)
    text = b.CreateString
    image = _table(b, 2, (0, "int8", RGB if channels == 3 else GRAYSCALE))
    content = _table(b, 3, (0, "uint8", IMAGE_PROPERTIES), (1, "offset", image))
    source = [(0, "offset", text("image")), (3, "offset", content)]
    if normalization is not None:
        mean, std = (b.CreateNumpyVector(np.float32(values)) for values in normalization)
        options = _table(b, 2, (0, "offset", mean), (1, "offset", std))
        unit = _table(b, 2, (0, "uint8", NORMALIZATION), (1, "offset", options))
        source.append((4, "offset", _offsets(b, unit)))
    targets = [_output(b, *answer) for answer in answers]
    sources = _offsets(b, _table(b, 7, *source))
    targets = _offsets(b, *(_table(b, 7, *target) for target in targets))
    graph = _offsets(b, _table(b, 7, (2, "offset", sources), (3, "offset", targets)))
    parser = (7, "offset", text("1.0.0"))
    b.Finish(_table(b, 8, (0, "offset", text(name)), (3, "offset", graph), parser), b"M001")
    return bytes(b.Output())


def _output(b, name, description, has_labels):
    """The fields of an output; one without a description has only a name."""
    target = [(0, "offset", b.CreateString(name))]
    if description is not None:
        content = _table(b, 3, (0, "uint8", FEATURE_PROPERTIES), (1, "offset", _table(b, 0)))
        target += [(3, "offset", content), (1, "offset", b.CreateString(description))]
    if has_labels:
        labels = _table(b, 4, (0, "offset", b.CreateString(LABELS)), (2, "int8", LABEL_FILE))
        target.append((6, "offset", _offsets(b, labels)))
    return target


def _table(b, slots, *fields):
    add = {
        "offset": b.PrependUOffsetTRelativeSlot,
        "uint8": b.PrependUint8Slot,
        "int8": b.PrependInt8Slot,
    }
    b.StartObject(slots)
    for slot, kind, value in fields:
        add[kind](slot, value, 0)
    return b.EndObject()


def _offsets(b, *values):
    b.StartVector(4, len(values), 4)
    for value in reversed(values):
        b.PrependUOffsetTRelative(value)
    return b.EndVector()
