"""A small data set of TensorFlow Datasets, which the test prepares in both formats."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.dataset import UnreadableImageError
from vit_keras.data.sources import fingerprint
from vit_keras.data.tfds import record_offsets
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once

NAMES = ["no", "yes", "perhaps"]


def picture(split, i):
    """Makes a picture of one gray level, which identifies it."""
    return np.full((5, 4, 3), i + (100 if split == "validation" else 0), "uint8")


class TinyPictures(tfds.core.GeneratorBasedBuilder):
    """Seventeen training pictures and four held-out ones."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "id": tfds.features.Text(),
            "image": tfds.features.Image(shape=(None, None, 3)),
            "label": tfds.features.ClassLabel(names=NAMES),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {name: self._examples(name, n) for name, n in (("train", 17), ("validation", 4))}

    def _generate_examples(self):
        raise NotImplementedError

    def _examples(self, split, count):
        for i in range(count):
            yield i, {"id": f"{i}", "image": picture(split, i), "label": i % 3}


@pytest.fixture(scope="module", params=["tfrecord", "array_record"])
def prepared(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    builder = TinyPictures(data_dir=folder, file_format=request.param)
    two = tfds.download.DownloadConfig(num_shards=2)
    builder.download_and_prepare(download_config=two)
    return DataConfig(data_dir=str(folder)), builder


def test_records_are_read_by_index(prepared):
    config, builder = prepared
    dataset = data.load("tfds:tiny_pictures", 3, config)
    assert dataset.class_names == tuple(NAMES)
    if builder.info.file_format == tfds.core.FileFormat.TFRECORD:
        stored = list(builder.as_dataset(split="train").as_numpy_iterator())
    else:
        stored = builder.as_data_source("train")
    train, test = dataset.split("train"), dataset.split("test")
    assert (len(train), len(test)) == (17, 4)
    for i in range(17):
        image, label = train.example(i)
        np.testing.assert_array_equal(image, stored[i]["image"])
        assert label == stored[i]["label"]
    np.testing.assert_array_equal(train.labels, [stored[i]["label"] for i in range(17)])
    part = dataset.split("train[:50%]")
    np.testing.assert_array_equal(part.labels, train.labels[:8])  # 8.5, to the even one
    versioned = data.load("tfds:tiny_pictures:1.0.0", 1, config).split("validation[1:3]")
    assert {int(versioned.read(i)[0, 0, 0]) for i in range(2)} < {100, 101, 102, 103}


def test_a_run_keeps_its_records(prepared, tmp_path):
    dataset = data.load("tfds:tiny_pictures", 3, prepared[0])
    data.check_unchanged(dataset, tmp_path)
    assert fingerprint(dataset)["images"] == {"train": {"all": 17}, "validation": {"all": 4}}
    fewer = data.Dataset(dataset.name, {"train": dataset.split("train")}, dataset.class_names)
    with pytest.raises(ValueError, match="validation/all: 4 images then, 0 now"):
        data.check_unchanged(fewer, tmp_path)


def test_a_cut_file_of_records_is_named(tmp_path):
    TinyPictures(data_dir=tmp_path, file_format="tfrecord").download_and_prepare()
    (file,) = pathlib.Path(tmp_path).rglob("*train*.tfrecord*")
    whole = [record.numpy() for record in tf.data.TFRecordDataset(str(file))]
    content = file.read_bytes()
    assert [content[at : at + size] for at, size in record_offsets(str(file))] == whole
    file.write_bytes(content[:-20])
    with pytest.raises(ValueError, match=r"train.*must hold 17 records. Received: 16"):
        data.load("tfds:tiny_pictures", 3, DataConfig(data_dir=str(tmp_path)))


def test_a_damaged_record_is_named(tmp_path):
    TinyPictures(data_dir=tmp_path, file_format="tfrecord").download_and_prepare()
    (file,) = pathlib.Path(tmp_path).rglob("*train*.tfrecord*")
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
