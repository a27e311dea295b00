"""Reads TFLite files as the tables of their schema, and packs changed tables into smaller files."""

import collections
import os

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

ALIGNMENT = 16  # bytes; TFLite's buffers begin at multiples of it


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


def float_operations(path: str | os.PathLike) -> dict[str, int]:
    """Counts the operations of a TFLite file that return float32, by name, except DEQUANTIZE."""
    model, counts = read(path), collections.Counter[str]()
    names = {code: name for name, code in vars(schema.BuiltinOperator).items()}
    codes = [max(c.builtinCode, c.deprecatedBuiltinCode) for c in model.operatorCodes]
    for graph in model.subgraphs:
        for node in graph.operators:
            is_float = graph.tensors[node.outputs[0]].type == schema.TensorType.FLOAT32
            counts[names[codes[node.opcodeIndex]]] += is_float
    return {name: number for name, number in counts.items() if number and name != "DEQUANTIZE"}
