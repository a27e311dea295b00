"""VTAB-1k: the published table, the arithmetic of its labels, its settings and its means."""

import collections
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers import ROOT
from vit_keras.commands import run
from vit_keras.config import read_config
from vit_keras.data.tfds import TASKS
from vit_keras.experiments import starting_point, training_run, vtab

pytestmark = pytest.mark.once


def label(task, **example):
    return int(TASKS[task].label.derive(example))


def test_groups_and_classes_are_the_published_ones():
    groups = collections.Counter(task.group for task in TASKS.values())
    assert groups == {"natural": 7, "specialized": 4, "structured": 8}
    classes = [task.num_classes for task in TASKS.values()]
    assert classes == [102, 100, 47, 102, 37, 397, 10, 2, 10, 45, 5, 8, 6, 6, 4, 16, 16, 18, 9]


@pytest.mark.parametrize(
    ("task", "images", "percent"),
    [  # images of TFDS' split, and the share of it that the published code trains on
        ("caltech101", 3060, 90),
        ("cifar100", 50_000, 90),
        ("oxford_iiit_pet", 3680, 80),
        ("svhn", 73_257, 90),
        ("eurosat", 27_000, 60),
        ("resisc45", 31_500, 60),
        ("clevr_count", 70_000, 90),
        ("clevr_distance", 70_000, 90),
        ("dsprites_location", 737_280, 80),
        ("dsprites_orientation", 737_280, 80),
    ],
)
def test_validation_images_follow_the_training_share(task, images, percent):
    start = images * percent // 100
    assert TASKS[task].val200 == f"train[{start}:{start + 200}]"


def test_test_images_are_those_left():
    assert TASKS["eurosat"].test == f"train[{27_000 * 80 // 100}:]"
    assert TASKS["resisc45"].test == f"train[{31_500 * 80 // 100}:]"
    assert TASKS["dsprites_location"].test == f"train[{737_280 * 90 // 100}:]"
    whole = {name for name, task in TASKS.items() if task.label is None}
    assert len(whole) == 12 and not any(name.startswith(("clevr", "kitti", "ds")) for name in whole)
    others = collections.Counter(task.test for task in TASKS.values())
    assert others["test"] == 11 and others["validation"] == 2 and others["test[50%:]"] == 2


def test_neighboring_dsprites_classes_are_one():
    for k in range(40):
        found = label("dsprites_orientation", label_orientation=np.int64(k))
        assert found == int(np.float32(k) // np.float32(40 / 16))
    for k in range(32):
        assert label("dsprites_location", label_x_position=np.int64(k)) == k // 2
    assert label("smallnorb_azimuth", label_azimuth=17, label_elevation=3) == 17
    assert label("smallnorb_elevation", label_azimuth=17, label_elevation=3) == 3


@pytest.mark.parametrize("count", [3, 7, 10])
def test_clevr_counts_from_three(count):
    assert label("clevr_count", objects={"size": np.zeros(count, "int64")}) == count - 3


@pytest.mark.parametrize(
    ("distance", "expected"),
    [(3.0, 0), (8.0, 0), (8.25, 1), (8.75, 2), (9.25, 3), (9.75, 4), (10.5, 5), (99.0, 5)],
)
def test_clevr_distances_fall_into_six_intervals(distance, expected):
    pixels = np.array([[0, 0, 120], [5, 5, distance], [9, 9, 150]], "float32")
    assert label("clevr_distance", objects={"pixel_coords": pixels}) == expected


@pytest.mark.parametrize(
    ("types", "depths", "expected"),
    [
        ([0, 3, 2], [25.0, 2.0, 30.0], 2),  # the pedestrian does not count
        ([1, 0], [7.9, 30.0], 0),
        ([2], [8.5], 1),
        ([0], [20.0], 1),
        ([3, 7], [5.0, 6.0], 3),  # no vehicle
        ([], [], 3),
    ],
)
def test_kitti_looks_at_the_nearest_vehicle(types, depths, expected):
    location = np.array([[1.0, 2.0, z] for z in depths], "float32").reshape(-1, 3)
    objects = {"type": np.array(types, "int64"), "location": location}
    assert label("kitti_distance", objects=objects) == expected


def test_labels_that_a_change_would_make_wrong_are_not_changed():
    """BiT, Supplementary F."""
    assert {name for name, task in TASKS.items() if not task.flip} == {
        *("dsprites_orientation", "dsprites_location", "smallnorb_azimuth")
    }
    assert {name for name, task in TASKS.items() if not task.crop} == {
        *("clevr_count", "clevr_distance", "dmlab", "kitti_distance", "dsprites_location")
    }


@pytest.mark.parametrize(
    ("task", "setting", "size", "steps", "rate", "crop", "flip"),
    [
        ("cifar100", "paper", 384, 2500, 0.01, "bit", True),
        ("cifar100", "bit", 128, 500, 0.003, "bit", True),
        ("dsprites_location", "bit", 128, 500, 0.003, "resize", False),
        ("patch_camelyon", "bit", 384, 500, 0.003, "bit", True),
    ],
)
def test_configurations_are_the_settings(
    weights, tmp_path, task, setting, size, steps, rate, crop, flip
):
    changes = {"batch": 32, "model": {"num_heads": 3}}
    fields = vtab.task_config(task, setting, weights, workdir=tmp_path / task, changes=changes)
    vtab.write_config(fields, tmp_path / "a.yaml")
    config = starting_point.complete_model(read_config(tmp_path / "a.yaml"))
    assert (config.dataset, config.batch) == (f"vtab:{task}", 32)
    assert (config.model.image_size, config.total_steps, config.eval_every) == (size, steps, steps)
    assert (config.optimizer.name, config.optimizer.learning_rate) == ("sgd", rate)
    assert (config.augment.crop, config.augment.flip) == (crop, flip)
    assert (config.model.hidden_size, config.model.num_layers, config.model.mlp_dim) == (24, 2, 40)
    assert config.model.patch_size == 8 and config.model.weights == str(weights)


def test_groups_are_averaged_and_the_score_is_the_mean_of_tasks():
    found = {"dtd": 0.5, "svhn": 0.7, "eurosat": 0.9, "dmlab": 0.3}
    expected = [("natural", 2, 0.6), ("specialized", 1, 0.9), ("structured", 1, 0.3)]
    assert vtab.means(found) == [pytest.approx(row) for row in [*expected, ("all", 4, 0.6)]]
    as_csv, as_markdown = vtab.tables(found)
    lines = as_csv.splitlines()
    assert lines[:2] == ["task,group,accuracy", "dtd,natural,0.5"]
    assert lines[-1] == "mean of 4,all,0.6" and len(lines) == 9
    assert "| mean of 2 | natural | 60.00 |" in as_markdown


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
    with pytest.raises(ValueError, match="svhn.yaml' belongs to another setting or checkpoint"):
        run([*command, "svhn", "--config", str(tmp_path / "fields.yaml")])


REACHED = """
import json, sys
import tensorflow_datasets as tfds
from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.tfds import TASKS

def reached(*arguments, **fields):
    raise RuntimeError("its download begins")

for name in ("download", "download_and_extract", "iter_archive"):
    setattr(tfds.download.DownloadManager, name, reached)
found = {}
for task in TASKS:
    try:
        data.load(f"vtab:{task}", 3, DataConfig(data_dir=sys.argv[1]))
    except Exception as error:
        found[task] = str(error)
print(json.dumps(found))
"""


def test_every_task_can_be_prepared_up_to_its_download(tmp_path):
    """With the packages of `locks` alone, in a process without the small data sets of the tests."""
    command = [sys.executable, "-c", REACHED, str(tmp_path)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = json.loads(printed.splitlines()[-1])
    by_hand = {"resisc45", "diabetic_retinopathy"}  # whose archives are not on the web
    assert found.keys() == TASKS.keys()
    for task, message in found.items():
        wanted = "Manual directory" if task in by_hand else "its download begins"
        assert wanted in message and "Where there is internet, run: tfds build" in message
