"""TFRecord files of TensorFlow are read, and TensorFlow reads ours."""

import io

import numpy as np
import pytest
from PIL import Image

from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.shards.formats import FORMATS

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("shard_cache")]
COUNT = 12


@pytest.fixture
def pictures(rng):
    """PNG files of several sizes."""

    def png():
        file = io.BytesIO()
        sides = (*rng.integers(1, 40, 2), 3)
        Image.fromarray(rng.integers(0, 256, sides, dtype="uint8")).save(file, "png")
        return file.getvalue()

    return [png() for _ in range(COUNT)]


def example(tf, picture, **features):
    """`tf.train.Example` of a picture and features: bytes, whole numbers, or real numbers."""
    made = {"image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[picture]))}
    for name, value in features.items():
        made[name.replace("__", "/")] = (
            tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
            if isinstance(value, bytes)
            else tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
            if isinstance(value, float)
            else tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        )
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def write(tf, path, records):
    with tf.io.TFRecordWriter(str(path)) as file:
        for record in records:
            file.write(record)


@pytest.mark.parametrize("label", ["number", "text"])
def test_files_of_tensorflow_are_read(tmp_path, rng, pictures, label):
    import tensorflow as tf

    numbers = rng.permutation(COUNT) % 3
    values = [int(n) if label == "number" else f"kind {n}".encode() for n in numbers]
    more = {"image__format": b"png", "weight": 0.5, "id": 7}
    records = [example(tf, p, label=v, **more) for p, v in zip(pictures, values)]
    for name, part in (("train-0.tfrecord", records[:7]), ("train-1.tfrecord", records[7:])):
        write(tf, tmp_path / name, part)
    dataset = data.load(f"shards:{tmp_path}", 3, DataConfig(test_percent=0, test_split="train"))
    split = dataset.split("train")
    names = "012" if label == "number" else ("kind 0", "kind 1", "kind 2")
    assert dataset.class_names == tuple(names)
    np.testing.assert_array_equal(split.labels, numbers)
    assert [split.encoded(i)[0] for i in range(COUNT)] == pictures


def test_tensorflow_reads_our_files(tmp_path, rng, pictures):
    import tensorflow as tf

    numbers = rng.integers(0, 9, COUNT).tolist()
    with FORMATS["tfrecord"].writer(str(tmp_path / "ours"), [*map(str, range(9))]) as add:
        for picture, number in zip(pictures, numbers):
            add("a.png", picture, number)
    features = {
        "image": tf.io.FixedLenFeature((), tf.string),
        "label": tf.io.FixedLenFeature((), tf.int64),
    }
    records = tf.data.TFRecordDataset(str(tmp_path / "ours"))
    read = [tf.io.parse_single_example(record, features) for record in records]
    assert [row["image"].numpy() for row in read] == pictures
    assert [int(row["label"]) for row in read] == numbers
    theirs = [example(tf, p, label=n) for p, n in zip(pictures, numbers)]
    assert [tf.train.Example.FromString(r.numpy()) for r in records] == [
        tf.train.Example.FromString(t) for t in theirs
    ]


def test_every_damaged_byte_is_noticed_where_tensorflow_notices_it(tmp_path, pictures):
    import tensorflow as tf

    write(tf, tmp_path / "a.tfrecord", [example(tf, pictures[i], label=i) for i in range(2)])
    whole = (tmp_path / "a.tfrecord").read_bytes()
    load = lambda name: data.load(f"shards:{tmp_path / name}", 3, DataConfig(test_percent=0))
    assert len(load("a.tfrecord").split("train")) == 2
    places = [*range(20), *range(20, len(whole) - 8, 97), *range(len(whole) - 8, len(whole))]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 4
        (tmp_path / "b.tfrecord").write_bytes(damaged)
        with pytest.raises(tf.errors.DataLossError):
            list(tf.data.TFRecordDataset(str(tmp_path / "b.tfrecord")))
        with pytest.raises(ValueError, match=r"b.tfrecord' is not a whole shard \("):
            load("b.tfrecord")


def test_examples_without_a_picture_or_a_class_are_refused(tmp_path, pictures):
    import tensorflow as tf

    two = tf.train.Example.FromString(example(tf, pictures[0], label=1))
    two.features.feature["label"].int64_list.value.append(2)
    for record, reason in {
        tf.train.Example().SerializeToString(): "but has nothing",
        b"\xff" * 30: "Error parsing message",
        two.SerializeToString(): "label of its record 0 must be one class",
        example(tf, pictures[0], label=0.5): "label of its record 0 must be one class",
        example(tf, pictures[0], label=b"\xff\xfe"): "can't decode byte 0xff",
    }.items():
        write(tf, tmp_path / "a.tfrecord", [record])
        with pytest.raises(ValueError, match=rf"a.tfrecord' is not a whole shard \(.*{reason}"):
            data.load(f"shards:{tmp_path}", 3)
