"""TensorFlow Datasets and TFRecord files are read, and TensorFlow reads ours."""

import io
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

from tests.data.gray_shards import grays
from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.dataset import UnreadableImageError
from vit_keras.data.shards.formats import FORMATS
from vit_keras.data.tfds import record_offsets
from vit_keras.models import Preprocessing

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("shard_cache")]
CLASSES = ["ant", "bee", "cat"]


class TinyPictures(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """The pictures and labels in `content`, by split and in order."""

    VERSION = tfds.core.Version("1.0.0")
    content: ClassVar[dict] = {}

    def _info(self):
        features = {"id": tfds.features.Text(), "label": tfds.features.ClassLabel(names=CLASSES)}
        features["image"] = tfds.features.Image(shape=(None, None, 3))
        features = tfds.features.FeaturesDict(features)
        return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

    def _split_generators(self, dl_manager):
        return {name: self._generate_examples(rows) for name, rows in self.content.items()}

    def _generate_examples(self, rows):
        for i, (picture, label) in enumerate(rows):
            yield i, {"id": f"{i}", "image": picture, "label": label}


def grays_of(levels):
    return [(np.full((5, 4, 3), level, "uint8"), i % 3) for i, level in enumerate(levels)]


GRAYS = {"train": grays_of(range(17)), "validation": grays_of(range(100, 104))}


def prepare(folder, form, content=GRAYS, **options):
    TinyPictures.content = content
    builder = TinyPictures(data_dir=folder, file_format=form)
    builder.download_and_prepare(**options)
    return builder


@pytest.fixture(scope="module", params=["tfrecord", "array_record"])
def prepared(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    two = tfds.download.DownloadConfig(num_shards=2)
    builder = prepare(folder, request.param, download_config=two)
    return DataConfig(data_dir=str(folder)), builder


def test_records_are_read_by_index(prepared):
    config, builder = prepared
    dataset = data.load("tfds:tiny_pictures", 3, config)
    assert dataset.class_names == tuple(CLASSES)
    if builder.info.file_format == tfds.core.FileFormat.TFRECORD:
        stored = list(builder.as_dataset(split="train").as_numpy_iterator())
    else:
        stored = builder.as_data_source("train")
    train = dataset.split("train")
    assert (len(train), len(dataset.split("test"))) == (17, 4)
    for i in range(17):
        image, label = train.example(i)
        np.testing.assert_array_equal(image, stored[i]["image"])
        assert label == train.labels[i] == stored[i]["label"]
    part = dataset.split("train[:50%]")
    np.testing.assert_array_equal(part.labels, train.labels[:8])  # 8.5, to the even one
    versioned = data.load("tfds:tiny_pictures:1.0.0", 1, config).split("validation[1:3]")
    assert {*grays(versioned)} < {100, 101, 102, 103}


@pytest.fixture
def file(tmp_path):
    prepare(tmp_path, "tfrecord")
    (file,) = tmp_path.rglob("*train*.tfrecord*")
    return file


def test_a_cut_file_of_records_is_named(file, tmp_path):
    whole = [record.numpy() for record in tf.data.TFRecordDataset(str(file))]
    content = file.read_bytes()
    assert [content[at : at + size] for at, size in record_offsets(str(file))] == whole
    file.write_bytes(content[:-20])
    with pytest.raises(ValueError, match=r"train.*must hold 17 records. Received: 16"):
        data.load("tfds:tiny_pictures", 3, DataConfig(data_dir=str(tmp_path)))


def test_a_damaged_record_is_named(file, tmp_path):
    start, size = record_offsets(str(file))[5]
    content = bytearray(file.read_bytes())
    content[start : start + size] = b"\xff" * size
    file.write_bytes(content)
    split = data.load("tfds:tiny_pictures", 3, DataConfig(data_dir=str(tmp_path))).split("train")
    message = r"^'tfds:tiny_pictures train\[5\]' cannot be read"
    with pytest.raises(UnreadableImageError, match=message):
        _ = split.labels
    options = {"image_size": (5, 4), "preprocessing": Preprocessing(), "batch": 4}
    with pytest.raises(UnreadableImageError, match=message), split.reading():
        list(data.eval_batches(split, **options))


RECORDS = 12


@pytest.fixture
def pictures(rng):
    def stored(pixels):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "png")
        return file.getvalue()

    sides = rng.integers(1, 40, (RECORDS, 2))
    return [stored(rng.integers(0, 256, (*of, 3), dtype="uint8")) for of in sides]


def example(picture, **features):
    """`tf.train.Example` of a picture and features: bytes, whole numbers, or real numbers."""
    made = tf.train.Example()
    made.features.feature["image"].bytes_list.value.append(picture)
    for name, value in features.items():
        kind = {bytes: "bytes", float: "float", int: "int64"}[type(value)]
        feature = made.features.feature[name.replace("__", "/")]
        getattr(feature, f"{kind}_list").value.append(value)
    return made.SerializeToString()


def write(path, records):
    with tf.io.TFRecordWriter(str(path)) as file:
        for record in records:
            file.write(record)


@pytest.mark.parametrize("label", ["number", "text"])
def test_files_of_tensorflow_are_read(tmp_path, rng, pictures, label):
    numbers = rng.permutation(RECORDS) % 3
    values = [int(n) if label == "number" else f"kind {n}".encode() for n in numbers]
    more = {"image__format": b"png", "weight": 0.5, "id": 7}
    records = [example(p, label=v, **more) for p, v in zip(pictures, values)]
    for name, part in (("train-0.tfrecord", records[:7]), ("train-1.tfrecord", records[7:])):
        write(tmp_path / name, part)
    dataset = data.load(f"shards:{tmp_path}", 3, DataConfig(test_percent=0, test_split="train"))
    split = dataset.split("train")
    names = "012" if label == "number" else ("kind 0", "kind 1", "kind 2")
    assert dataset.class_names == (*names,)
    np.testing.assert_array_equal(split.labels, numbers)
    assert [split.encoded(i)[0] for i in range(RECORDS)] == pictures


def test_tensorflow_reads_our_files(tmp_path, rng, pictures):
    numbers = rng.integers(0, 9, RECORDS).tolist()
    with FORMATS["tfrecord"].writer(str(tmp_path / "ours"), [*map(str, range(9))]) as add:
        for picture, number in zip(pictures, numbers):
            add("a.png", picture, number)
    records = tf.data.TFRecordDataset(str(tmp_path / "ours")).as_numpy_iterator()
    theirs = [example(p, label=n) for p, n in zip(pictures, numbers)]
    assert [*map(tf.train.Example.FromString, records)] == [
        *map(tf.train.Example.FromString, theirs)
    ]


def test_every_damaged_byte_is_noticed_where_tensorflow_notices_it(tmp_path, pictures):
    write(tmp_path / "a.tfrecord", [example(pictures[i], label=i) for i in range(2)])
    whole = (tmp_path / "a.tfrecord").read_bytes()
    load = lambda name: data.load(f"shards:{tmp_path / name}", 3, DataConfig(test_percent=0))
    assert len(load("a.tfrecord").split("train")) == 2
    places = [*range(0, 20, 3), *range(20, len(whole), 499), len(whole) - 1]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 4
        (tmp_path / "b.tfrecord").write_bytes(damaged)
        with pytest.raises(tf.errors.DataLossError):
            list(tf.data.TFRecordDataset(str(tmp_path / "b.tfrecord")))
        with pytest.raises(ValueError, match=r"b.tfrecord' is not a whole shard \("):
            load("b.tfrecord")


def test_examples_without_a_picture_or_a_class_are_refused(tmp_path, pictures):
    two = tf.train.Example.FromString(example(pictures[0], label=1))
    two.features.feature["label"].int64_list.value.append(2)
    for record, reason in {
        tf.train.Example().SerializeToString(): "but has nothing",
        b"\xff" * 30: "Error parsing message",
        two.SerializeToString(): "label of its record 0 must be one class",
        example(pictures[0], label=0.5): "label of its record 0 must be one class",
        example(pictures[0], label=b"\xff\xfe"): "can't decode byte 0xff",
    }.items():
        write(tmp_path / "a.tfrecord", [record])
        with pytest.raises(ValueError, match=rf"a.tfrecord' is not a whole shard \(.*{reason}"):
            data.load(f"shards:{tmp_path}", 3)
