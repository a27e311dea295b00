"""Reads the tables of TFLite files, changes them, and packs them into smaller files.

Metadata for MediaPipe and Android Studio (normalization and labels) is written with the field
numbers of TensorFlow Lite's metadata_schema.fbs (identifier M001), because the published writers
need packages that conflict with a current TensorFlow.
"""

import collections
import os
import pathlib
import zipfile
from collections.abc import Iterator
from typing import Any

import flatbuffers
import keras
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from vit_keras.models import class_names_of, preprocessing_of

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


def operations(model: schema.ModelT) -> Iterator[tuple[str, schema.TensorT]]:
    """Yields the name of each operation in the tables of a file, and the tensor that it returns."""
    names = {code: name for name, code in vars(schema.BuiltinOperator).items()}
    codes = [max(c.builtinCode, c.deprecatedBuiltinCode) for c in model.operatorCodes]
    for graph in model.subgraphs:
        for node in graph.operators:
            yield names[codes[node.opcodeIndex]], graph.tensors[node.outputs[0]]


def float_operations(path: str | os.PathLike) -> dict[str, int]:
    """Counts the operations of a TFLite file that return float32, by name, except DEQUANTIZE."""
    floats = (name for name, x in operations(read(path)) if x.type == schema.TensorType.FLOAT32)
    return dict(collections.Counter(name for name in floats if name != "DEQUANTIZE"))


LABELS = "labels.txt"
# Codes of enumerations in metadata_schema.fbs.
NORMALIZATION, IMAGE_PROPERTIES, FEATURE_PROPERTIES = map(np.uint8, (1, 2, 1))
RGB, GRAYSCALE, AXIS_LABELS = map(np.int8, (1, 2, 2))


def attach(path, model: keras.Model, output: str, raw: bool = False) -> None:
    """Adds metadata and class names to a TFLite file.

    Args:
        path: The file; changed in place.
        model: The Keras model in the file.
        output: As in `targets.Plan`. Of two outputs other than boxes, the one with three axes is
            described as attention.
        raw: Whether the file takes prepared images.
    """
    pixels, normalization = preprocessing_of(model), None
    if raw:
        normalization = [[255 * x for x in values] for values in (pixels.mean, pixels.std)]
    elif pixels.levels != 255:  # for clients that pass floats up to 255
        normalization = [[0.0], [255 / pixels.levels]]
    class_names = None if output == "features" else class_names_of(model)
    tables = read(path)
    graph = tables.subgraphs[0]
    if output == "boxes":
        named = {o.tensorIndex: o.name.decode() for o in tables.signatureDefs[0].outputs}
        names = [named[i] for i in graph.outputs]
    else:
        axes = [len(graph.tensors[i].shape) for i in graph.outputs]
        names = ["attention" if len(axes) > 1 and n == 3 else "output" for n in axes]
    labeled = () if class_names is None else ("output", "scores")
    packed = _metadata(model.name, model.input_shape[-1], normalization, names, labeled)
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = np.frombuffer(packed, "uint8")
    tables.buffers.append(buffer)
    entry.name, entry.buffer = "TFLITE_METADATA", len(tables.buffers) - 1
    tables.metadata = [*(tables.metadata or []), entry]
    pathlib.Path(path).write_bytes(pack(tables))
    if class_names is not None:
        with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo(LABELS), "\n".join(class_names))


def _metadata(name, channels, normalization, outputs, labeled) -> bytes:
    """Returns TFLite's metadata; a table maps the numbers of its fields to their values."""
    pixels = {0: IMAGE_PROPERTIES, 1: {0: RGB if channels == 3 else GRAYSCALE}}
    image = {0: "image", 3: pixels}
    if normalization is not None:
        image[4] = [{0: NORMALIZATION, 1: dict(enumerate(map(np.float32, normalization)))}]
    features, labels = {3: {0: FEATURE_PROPERTIES, 1: {}}}, {6: [{0: LABELS, 2: AXIS_LABELS}]}
    answers = [{0: x} | features | (labels if x in labeled else {}) for x in outputs]
    builder = flatbuffers.Builder(0)
    whole = {0: name, 3: [{2: [image], 3: answers}], 7: "1.0.0"}
    builder.Finish(_written(builder, whole), b"M001")
    return bytes(builder.Output())


def _written(builder, value) -> int:
    """Writes a string, an array, a list of tables, or a table; returns its offset."""
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
    add: dict[Any, Any] = {np.uint8: builder.PrependUint8Slot, np.int8: builder.PrependInt8Slot}
    fields = {n: v if type(v) in add else _written(builder, v) for n, v in value.items()}
    builder.StartObject(max(fields, default=-1) + 1)
    for number, field in fields.items():
        add.get(type(field), builder.PrependUOffsetTRelativeSlot)(number, field, 0)
    return builder.EndObject()
