"""The tasks of VTAB-1k on small data sets with the published features."""

import dataclasses
from typing import ClassVar

import numpy as np
import pytest
import tensorflow_datasets as tfds

from vit_keras import data, evaluation
from vit_keras.commands import run
from vit_keras.config import DataConfig
from vit_keras.data.tfds import TASKS
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.on("torch")  # which compiles nothing


class _Tiny(tfds.core.GeneratorBasedBuilder):
    """Few images with the features of a published data set."""

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(self.FEATURES)
        )

    def _split_generators(self, dl_manager):
        return {name: self._generate_examples(name) for name in self.SIZES}

    def _generate_examples(self, split):
        rng = np.random.default_rng(len(split))
        for i in range(self.SIZES[split]):
            yield i, self.example(i, rng)


class Kitti(_Tiny):
    name, VERSION = "kitti", tfds.core.Version("3.1.0")
    SIZES: ClassVar = {"train": 24, "validation": 9, "test": 13}
    FEATURES: ClassVar = {
        "image": tfds.features.Image(),
        "objects": tfds.features.Sequence(
            {
                "type": tfds.features.ClassLabel(num_classes=8),
                "location": tfds.features.Tensor(shape=(3,), dtype=np.float32),
            }
        ),
    }

    def example(self, i, rng):
        """The image's first pixel tells its class."""
        objects = [
            {"type": int(rng.integers(0, 8)), "location": rng.uniform(0, 40, 3).astype("float32")}
            for _ in range(i % 4)
        ]
        near = min((o["location"][2] for o in objects if o["type"] < 3), default=None)
        known = 3 if near is None else int(near > 8) + int(near > 20)
        image = rng.integers(0, 256, (20, 30, 3), dtype="uint8")
        image[0, 0] = known
        return {"image": image, "objects": objects}


class Dsprites(_Tiny):
    name, VERSION = "dsprites", tfds.core.Version("2.0.0")
    SIZES: ClassVar = {"train": 60}
    FEATURES: ClassVar = {
        "image": tfds.features.Image(shape=(64, 64, 1)),
        "label_orientation": tfds.features.ClassLabel(num_classes=40),
        "label_x_position": tfds.features.ClassLabel(num_classes=32),
    }

    def example(self, i, rng):
        """A row of as many pixels as its orientation."""
        image = np.zeros((64, 64, 1), "uint8")
        image[0, : i % 40] = 1
        return {"image": image, "label_orientation": i % 40, "label_x_position": i % 32}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("tfds"))
    for builder, form in ((Kitti, "tfrecord"), (Dsprites, "array_record")):
        builder(data_dir=folder, file_format=form).download_and_prepare()
    return folder


def batch_of(split, size):
    """All images of a split as whole numbers, and their labels."""
    how = {"image_size": size, "preprocessing": Preprocessing(), "batch": len(split)}
    ((images, labels),) = data.eval_batches(split, **how)
    return np.round(127.5 * images + 127.5), labels


def test_a_task_reads_its_thousand_images_and_derives_their_classes(data_dir):
    kitti = data.load("vtab:kitti_distance", 3, DataConfig(data_dir=data_dir))
    sizes = {name: len(split) for name, split in kitti.splits.items()}
    assert sizes == {"train800": 24, "val200": 9, "test": 13, "train": 33}
    assert kitti.class_names == tuple("0123")
    train, parts = kitti.split("train"), (kitti.split("train800"), kitti.split("val200"))
    np.testing.assert_array_equal(train.labels, np.concatenate([part.labels for part in parts]))
    images, labels = batch_of(train, (20, 30))
    np.testing.assert_array_equal(images[:, 0, 0, 0], train.labels)
    np.testing.assert_array_equal(labels, train.labels)
    assert set(train.labels) == {0, 1, 2, 3}
    assert train.name(24) == "tfds:kitti validation[0]"


def test_dsprites_have_pixels_from_0_to_255(data_dir, monkeypatch):
    name = "dsprites_orientation"
    small = dataclasses.replace(TASKS[name], val200="train[48:52]", test="train[52:]")
    monkeypatch.setitem(TASKS, name, small)
    sprites = data.load(f"vtab:{name}", 1, DataConfig(data_dir=data_dir))
    for split, count in (("train", 60 + 4), ("test", 8)):
        images, labels = batch_of(sprites.split(split), (64, 64))
        assert len(labels) == count and set(np.unique(images)) == {0, 255}
        orientations = (images > 0).sum(axis=(1, 2, 3))
        np.testing.assert_array_equal(labels, orientations * 16 // 40)
        np.testing.assert_array_equal(labels, sprites.split(split).labels)


@pytest.mark.slow
def test_a_checkpoint_is_fine_tuned_on_a_task(weights, data_dir, tmp_path, capsys):
    """The whole way, `train.py` in a process of its own; the accuracy is `evaluate.py`'s."""
    (tmp_path / "fields.yaml").write_text(
        "total_steps: 3\nbatch: 4\nmodel: {image_size: 32}\noptimizer: {warmup_steps: 1}"
    )
    out = tmp_path / "out"
    command = ["vtab", str(weights), "--out", str(out), "--data_dir", data_dir]
    command += ["--config", str(tmp_path / "fields.yaml"), "--tasks", "kitti_distance"]
    run(command)
    printed = capsys.readouterr().out
    predictor, trained = evaluation.open_predictor(out / "kitti_distance")
    assert trained.config.augment.crop == "resize" and predictor.num_classes == 4
    kitti = data.load(trained.config.dataset, 3, trained.config.data)
    found = evaluation.evaluate(predictor, kitti.split("test"), kitti.class_names, batch=13)
    assert f"kitti_distance: {100 * found['accuracy']:.2f}%" in printed
    before = (out / "kitti_distance" / "model.keras").stat().st_mtime_ns
    run(command)
    assert (out / "kitti_distance" / "model.keras").stat().st_mtime_ns == before
