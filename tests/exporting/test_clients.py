"""Other programs read the files: TensorFlow's tool, MediaPipe, and a plain parser."""

import struct

import pytest

from tests.helpers import shapes_only
from vit_keras.exporting.manifest import card
from vit_keras.exporting.verification import measures
from vit_keras.models import from_variant
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.once


def field(data, table, number):
    """The place of a FlatBuffers table's field; None if it is not set."""
    entries = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, entries)[0]
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", data, entries + place)[0] if place < size else 0
    return table + offset if offset else None


def follow(data, place):
    """The place that the offset at `place` points to."""
    return place + struct.unpack_from("<I", data, place)[0]


def vector(data, place):
    place = follow(data, place)
    length = struct.unpack_from("<I", data, place)[0]
    return [follow(data, place + 4 + 4 * i) for i in range(length)]


def text(data, place):
    place = follow(data, place)
    length = struct.unpack_from("<I", data, place)[0]
    return data[place + 4 : place + 4 + length].decode()


def test_the_metadata_is_read_byte_by_byte(exported):
    """The numbers of fields come from TensorFlow's metadata_schema.fbs, not from our writer."""
    folder, _, _, _ = exported
    file = (folder / "model_int8.tflite").read_bytes()
    assert file[4:8] == b"TFL3"
    model = follow(file, 0)
    names = {text(file, field(file, e, 0)): e for e in vector(file, field(file, model, 6))}
    number = struct.unpack_from("<I", file, field(file, names["TFLITE_METADATA"], 1))[0]
    place = follow(file, field(file, vector(file, field(file, model, 4))[number], 0))
    assert (place + 4) % 16 == 0  # buffers are aligned
    data = file[place + 4 : place + 4 + struct.unpack_from("<I", file, place)[0]]
    assert data[4:8] == b"M001"
    root = follow(data, 0)
    (graph,) = vector(data, field(data, root, 3))
    (source,), (target,) = (vector(data, field(data, graph, slot)) for slot in (2, 3))
    assert text(data, field(data, source, 0)) == "image" and field(data, source, 4) is None
    (labels,) = vector(data, field(data, target, 6))
    assert text(data, field(data, labels, 0)) == "labels.txt"
    assert data[field(data, labels, 2)] == 2  # TENSOR_AXIS_LABELS


@pytest.mark.parametrize(
    ("task", "output", "sentences", "column"),
    [
        (Task(), "softmax", ["`(N, K)` is the probability of each class, in"], "same class"),
        (Task(), "logits", ["a logit of each class", "The softmax of the logits"], "of a logit"),
        (
            Task("labels", thresholds=(0.25, 3e-8)),
            "sigmoid",
            ["probability of each label", "from this probability on: sun 0.25, sea 3e-08."],
            "same labels",
        ),
        (
            Task("labels"),
            "logits",
            ["The sigmoid of the logits", "from this probability on: sun 0.5, sea 0.5."],
            "same labels",
        ),
        (Task("numbers"), "values", ["each number in the unit of the training table"], "R²"),
        (Task("masks"), "softmax", ["`(N, H, W, K)`", "each class at each pixel"], "of a pixel"),
        (Task("masks"), "mask", ["`(N, H, W)` is the number of the most"], "of a pixel"),
        (Task("numbers"), "features", ["`(N, D)` is the features"], "of a feature"),
    ],
)
def test_the_card_says_what_the_outputs_are(task, output, sentences, column):
    with shapes_only():
        model = from_variant("Ti/16", image_size=16, num_layers=1, num_classes=2)
    model.class_names, model.task = ["sun", "sea"], task
    source = {"shape": [16, 16, 3], "type": "uint8", "preprocessing_is_inside": True}
    reference = {"backend": "jax", "images": 1, "source": "noise"}
    row = {"file": "model.onnx", "bytes": 1, "agreement": 0.99875, "largest_difference": 0.1}
    row["agreement_is"] = measures(output, task)[0]
    manifest = {"input": source, "output": output, "reference": reference, "files": [row]}
    page = card(model, manifest)
    for sentence in [*sentences, column]:
        assert sentence in page
    assert ("class" in page) == (task.kind in ("classes", "masks"))
    assert ("99.88%" in page) == (column not in ("R²", "of a feature"))
