"""Reads TFLite files as the tables of their schema, and packs changed tables into smaller files."""

import collections
import os

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
        For each delegate of `DELEGATES`, such as `{"gpu": {"CAST": 1}, "mediatek": {}}`.
    """
    counts, common = operations(path), set(ALL_TAKE.split(", "))
    return {
        delegate: {name: counts[name] for name in sorted({*counts} - common - {*more.split(", ")})}
        for delegate, more in DELEGATES.items()
    }
