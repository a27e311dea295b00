"""Metadata in TFLite files for MediaPipe and Android Studio: normalization and labels.

The tables are written with the numbers of TensorFlow Lite's metadata_schema.fbs (identifier M001),
because the published writers need packages that conflict with a current TensorFlow.
"""

import io
import zipfile

import numpy as np

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
    from vit_keras.exporting import tflite_file

    model = tflite_file.read(path)
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
    buffer, entry = tflite_file.schema.BufferT(), tflite_file.schema.MetadataT()
    buffer.data = np.frombuffer(described, "uint8")
    model.buffers.append(buffer)
    entry.name, entry.buffer = "TFLITE_METADATA", len(model.buffers) - 1
    model.metadata = [*(model.metadata or []), entry]
    packed = io.BytesIO(tflite_file.pack(model))
    if class_names is not None:
        packed.seek(0, io.SEEK_END)
        with zipfile.ZipFile(packed, "a", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo(LABELS), "\n".join(class_names))
    with open(path, "wb") as file:
        file.write(packed.getvalue())


def _describe(name, channels, normalization, answers) -> bytes:
    import flatbuffers

    b = flatbuffers.Builder(0)
    text = b.CreateString
    image = _table(b, 2, (0, "int8", RGB if channels == 3 else GRAYSCALE))
    content = _table(b, 3, (0, "uint8", IMAGE_PROPERTIES), (1, "offset", image))
    source = [(0, "offset", text("image")), (3, "offset", content)]
    if normalization is not None:
        mean, std = (_floats(b, values) for values in normalization)
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


def _floats(b, values):
    b.StartVector(4, len(values), 4)
    for value in reversed(values):
        b.PrependFloat32(value)
    return b.EndVector()
