"""VTAB-1k: the published table, its labels, its settings, its means, and small data sets."""

import collections
import json
import pathlib
from typing import ClassVar

import numpy as np
import pytest
import tensorflow_datasets as tfds

from tests.data.test_tfds import Tiny
from tests.helpers import randomize
from vit_keras import data, evaluation
from vit_keras.commands import run
from vit_keras.config import DataConfig
from vit_keras.data.tfds import TASKS
from vit_keras.experiments import sweeps, training_run
from vit_keras.models import Preprocessing, VisionTransformer
from vit_keras.weights import save

pytestmark = pytest.mark.on("torch")  # which compiles nothing


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A small model for 32x32 pixels, in a file of Google's format."""
    model = VisionTransformer(32, 8, 24, 2, 3, 40, 7, classifier="gap", gelu="tanh")
    randomize(model, np.random.default_rng(0))
    save(model, file := tmp_path_factory.mktemp("weights") / "vit.npz", format="google")
    return file


def test_groups_and_classes_are_the_published_ones():
    groups = collections.Counter(task.group for task in TASKS.values())
    assert groups == {"natural": 7, "specialized": 4, "structured": 8}
    classes = [task.num_classes for task in TASKS.values()]
    assert classes == [102, 100, 47, 102, 37, 397, 10, 2, 10, 45, 5, 8, 6, 6, 4, 16, 16, 18, 9]


def test_validation_images_follow_the_training_share_and_test_images_are_those_left():
    for task, images, percent in (
        # images of TFDS' split, and the share of it that the published code trains on
        ("caltech101", 3060, 90),
        ("cifar100", 50_000, 90),
        ("oxford_iiit_pet", 3680, 80),
        ("svhn", 73_257, 90),
        ("eurosat", 27_000, 60),
        ("resisc45", 31_500, 60),
        ("clevr_count", 70_000, 90),
        ("dsprites_location", 737_280, 80),
    ):
        start = images * percent // 100
        assert TASKS[task].val200 == f"train[{start}:{start + 200}]"
    assert TASKS["eurosat"].test == f"train[{27_000 * 80 // 100}:]"
    assert TASKS["resisc45"].test == f"train[{31_500 * 80 // 100}:]"
    assert TASKS["dsprites_location"].test == f"train[{737_280 * 90 // 100}:]"


def distances(nearest):
    pixels = np.array([[0, 0, 120], [5, 5, nearest], [9, 9, 150]], "float32")
    return {"objects": {"pixel_coords": pixels}}


def vehicles(types, depths):
    location = np.array([[1.0, 2.0, z] for z in depths], "float32").reshape(-1, 3)
    return {"objects": {"type": np.array(types, "int64"), "location": location}}


LABELS = [
    *(("dsprites_location", {"label_x_position": np.int64(k)}, k // 2) for k in range(32)),
    ("smallnorb_azimuth", {"label_azimuth": 17, "label_elevation": 3}, 17),
    ("smallnorb_elevation", {"label_azimuth": 17, "label_elevation": 3}, 3),
    ("clevr_count", {"objects": {"size": np.zeros(7, "int64")}}, 4),
    *(
        ("clevr_distance", distances(nearest), expected)
        for nearest, expected in ((3, 0), (8, 0), (8.25, 1), (8.75, 2), (9.75, 4), (99, 5))
    ),
    ("kitti_distance", vehicles([0, 3, 2], [25.0, 2.0, 30.0]), 2),  # without the pedestrian
    ("kitti_distance", vehicles([1, 0], [7.9, 30.0]), 0),
    ("kitti_distance", vehicles([0], [20.0]), 1),
    ("kitti_distance", vehicles([3, 7], [5.0, 6.0]), 3),  # no vehicle
]


def test_labels_are_derived_as_published():
    for task, example, expected in LABELS:
        feature, class_of = TASKS[task].label
        assert class_of(example[feature]) == expected, (task, example)


def test_labels_that_a_change_would_make_wrong_are_not_changed():
    """BiT, Supplementary F."""
    not_flipped = {name for name, task in TASKS.items() if not task.flip}
    assert not_flipped == {"dsprites_orientation", "dsprites_location", "smallnorb_azimuth"}
    assert {name for name, task in TASKS.items() if not task.crop} == {
        *("clevr_count", "clevr_distance", "dmlab", "kitti_distance", "dsprites_location")
    }


@pytest.mark.parametrize(
    ("task", "setting", "size", "steps", "rate", "crop", "flip"),
    [
        ("cifar100", "paper", 384, 2500, 0.01, "bit", True),
        ("dsprites_location", "bit", 128, 500, 0.003, "resize", False),
        ("patch_camelyon", "bit", 384, 500, 0.003, "bit", True),
    ],
)
def test_configurations_are_the_settings(tmp_path, task, setting, size, steps, rate, crop, flip):
    changes = {"batch": 32, "model": {"num_heads": 3}}
    config = sweeps.task_config(task, tmp_path / task, setting, "vit.npz", {}, changes)
    assert (config.dataset, config.batch, config.model.num_heads) == (f"vtab:{task}", 32, 3)
    found = config.model.image_size, config.total_steps, config.eval_every
    assert found == (size, steps, steps)
    assert (config.optimizer.name, config.optimizer.learning_rate) == ("sgd", rate)
    assert (config.augment.crop, config.augment.flip) == (crop, flip)


class Trainer:
    """Stands for training: the first run on DMLab fails, as for want of its data."""

    def __init__(self):
        self.trained = []

    def __call__(self, config):
        self.trained.append(config.dataset)
        if config.dataset == "vtab:dmlab" and self.trained.count(config.dataset) == 1:
            raise FileNotFoundError("no such data set")
        folder = pathlib.Path(config.workdir)
        folder.mkdir(exist_ok=True)
        row = {"step": config.total_steps, "val_accuracy": config.model.image_size / 1000}
        rows = [{"step": 1, "val_accuracy": 0.0}, row]
        (folder / "metrics.json").write_text(json.dumps(rows))
        (folder / "model.keras").touch()


def test_complete_tasks_are_kept_and_others_continue(weights, tmp_path, monkeypatch, capsys):
    trainer = Trainer()
    monkeypatch.setattr(training_run, "train_run", trainer)
    command = ["vtab", str(weights), "--out", str(tmp_path / "out"), "--setting", "bit", "--tasks"]
    with pytest.raises(ValueError, match="1 of 3 tasks have no result: dmlab. Run the same"):
        run([*command, "svhn", "dmlab", "dtd"])
    assert "dmlab: no result: no such data set" in capsys.readouterr().out
    assert (tmp_path / "out" / "vtab.csv").read_text().splitlines()[1:] == [
        *("dtd,natural,0.384", "svhn,natural,0.128"),
        *("mean of 2,natural,0.256", "mean of 2,all,0.256"),
    ]
    run([*command, "svhn", "dmlab", "dtd"])
    assert trainer.trained == [f"vtab:{name}" for name in ("svhn", "dmlab", "dtd", "dmlab")]
    assert "| dmlab | structured | 38.40 |" in capsys.readouterr().out
    (tmp_path / "fields.yaml").write_text("total_steps: 7")
    with pytest.raises(ValueError, match="settings.json belongs to another setting or checkpoint"):
        run([*command, "svhn", "--config", str(tmp_path / "fields.yaml")])


def test_a_task_that_is_not_prepared_says_how(tmp_path, monkeypatch):
    manager = tfds.download.DownloadManager
    monkeypatch.setattr(manager, "download_and_extract", lambda *_: 1 / 0)
    with pytest.raises(ValueError, match="internet access, run: tfds build dtd:.* --data_dir "):
        data.load("vtab:dtd", 3, DataConfig(data_dir=str(tmp_path)))


def street(i, rng):
    """A picture of Kitti, whose first pixel tells its class."""
    objects = [
        {"type": int(rng.integers(0, 8)), "location": rng.uniform(0, 40, 3).astype("float32")}
        for _ in range(i % 4)
    ]
    near = min((o["location"][2] for o in objects if o["type"] < 3), default=None)
    image = rng.integers(0, 256, (20, 30, 3), dtype="uint8")
    image[0, 0] = 3 if near is None else int(near > 8) + int(near > 20)
    return {"image": image, "objects": objects}


class Kitti(Tiny):
    name, VERSION = "kitti", tfds.core.Version("3.1.0")
    content: ClassVar = {
        split: [street(i, np.random.default_rng([count, i])) for i in range(count)]
        for split, count in (("train", 24), ("validation", 9), ("test", 13))
    }
    FEATURES: ClassVar = {
        "image": tfds.features.Image(),
        "objects": tfds.features.Sequence(
            {
                "type": tfds.features.ClassLabel(num_classes=8),
                "location": tfds.features.Tensor(shape=(3,), dtype=np.float32),
            }
        ),
    }


def sprite(i):
    """A row of as many pixels as its orientation."""
    image = (np.arange(64 * 64) < i % 40).astype("uint8").reshape(64, 64, 1)
    return {"image": image, "label_orientation": i % 40, "label_x_position": i % 32}


class Dsprites(Tiny):
    name, VERSION = "dsprites", tfds.core.Version("2.0.0")
    content: ClassVar = {"train": [*map(sprite, range(60))]}
    FEATURES: ClassVar = {
        "image": tfds.features.Image(shape=(64, 64, 1)),
        "label_orientation": tfds.features.ClassLabel(num_classes=40),
        "label_x_position": tfds.features.ClassLabel(num_classes=32),
    }


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("tfds"))
    for builder in (Kitti, Dsprites):
        builder(data_dir=folder).download_and_prepare()
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
    assert train.name(24).endswith("kitti-validation.tfrecord-00000-of-00001 record 0")


def test_dsprites_have_pixels_from_0_to_255(data_dir, monkeypatch):
    name = "dsprites_orientation"
    small = TASKS[name]._replace(val200="train[48:52]", test="train[52:]")
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
