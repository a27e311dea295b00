"""TensorFlow Datasets and TFRecord files are read, and TensorFlow reads ours."""

from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

from tests.data.deep_pictures import stored
from tests.data.gray_shards import grays
from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.shards.formats import FORMATS
from vit_keras.data.tfds import TASKS, Task

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("shard_cache")]
CLASSES = ["ant", "bee", "cat"]


class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A data set of the rows in `content`, by split and in order."""

    VERSION = tfds.core.Version("1.0.0")
    content: ClassVar[dict] = {}

    def _info(self):
        features = tfds.features.FeaturesDict(self.FEATURES)
        return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

    def _split_generators(self, dl_manager):
        return {name: enumerate(rows) for name, rows in self.content.items()}

    def _generate_examples(self):
        """What `_split_generators` returns has all examples."""


class TinyPictures(Tiny, skip_registration=True):
    FEATURES: ClassVar = {
        "id": tfds.features.Text(),
        "label": tfds.features.ClassLabel(names=CLASSES),
        "image": tfds.features.Image(shape=(None, None, 3)),
    }


def grays_of(levels):
    return [(np.full((5, 4, 3), level, "uint8"), i % 3) for i, level in enumerate(levels)]


GRAYS = {"train": grays_of(range(17)), "validation": grays_of(range(100, 104))}


def prepare(folder, content=GRAYS, **options):
    TinyPictures.content = {
        split: [{"id": f"{i}", "image": x, "label": label} for i, (x, label) in enumerate(rows)]
        for split, rows in content.items()
    }
    builder = TinyPictures(data_dir=folder)
    builder.download_and_prepare(**options)
    return builder


def test_files_that_lack_records_are_refused_and_records_may_lack_a_class(tmp_path, monkeypatch):
    prepare(tmp_path, GRAYS | {"test": [(picture, -1) for picture, _ in GRAYS["train"]]})
    config = DataConfig(data_dir=str(tmp_path))
    dataset = data.load("tfds:tiny_pictures:1.0.0", 1, config)
    assert dataset.class_names == tuple(CLASSES) and [*dataset.splits] == ["train", "validation"]
    assert grays(dataset.split("train[:50%]")) == [*range(8)]  # 8.5, to the even one
    assert grays(dataset.split("test")) == [100, 101, 102, 103]
    assert dataset.split("test").labels.tolist() == [0, 1, 2, 0]
    task = Task("tiny_pictures:1.0.0", "natural", 3, "train[8:12]", "validation[1:]")
    monkeypatch.setitem(TASKS, "tiny", task)
    vtab = data.load("vtab:tiny", 1, config)
    levels = {name: grays(split) for name, split in vtab.splits.items()}
    train, tuned_on, test = [*range(17)], [*range(8, 12)], [101, 102, 103]
    expected = {"train800": train, "val200": tuned_on, "test": test, "train": train + tuned_on}
    assert levels == expected
    assert vtab.class_names == tuple(CLASSES) and not vtab.notes
    (info,) = tmp_path.rglob("dataset_info.json")
    info.write_text(info.read_text().replace('"17"', '"16"'))
    with pytest.raises(ValueError, match="train.* is not a whole shard .it has 17 .*of 16"):
        data.load("tfds:tiny_pictures", 3, config)


RECORDS = 12


@pytest.fixture
def pictures(rng):
    sides = rng.integers(1, 40, (RECORDS, 2))
    made = [rng.integers(0, 256, (*of, 3), dtype="uint8") for of in sides]
    return [stored(Image.fromarray(pixels), "PNG") for pixels in made]


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
    assert [*map(split.encoded, range(RECORDS))] == pictures


def test_tensorflow_reads_our_files(tmp_path, rng, pictures):
    numbers = rng.integers(0, 9, RECORDS).tolist()
    with FORMATS["tfrecord"].writer(str(tmp_path / "ours"), [*map(str, range(9))]) as add:
        for picture, number in zip(pictures, numbers):
            add("a.png", picture, number)
    records = tf.data.TFRecordDataset(str(tmp_path / "ours")).as_numpy_iterator()
    theirs = [example(p, label=n) for p, n in zip(pictures, numbers)]
    parsed = tf.train.Example.FromString
    assert [*map(parsed, records)] == [*map(parsed, theirs)]


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
        two.SerializeToString(): "its record 0 must have .* at most one class",
        example(pictures[0], label=0.5): "its record 0 must have .* at most one class",
        example(pictures[0], label=b"\xff\xfe"): "can't decode byte 0xff",
    }.items():
        write(tmp_path / "a.tfrecord", [record])
        with pytest.raises(ValueError, match=rf"a.tfrecord' is not a whole shard \(.*{reason}"):
            data.load(f"shards:{tmp_path}", 3)
