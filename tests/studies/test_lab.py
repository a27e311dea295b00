"""The runs of the studies: finished ones are reused, interrupted ones continue."""

import csv
import json
import pathlib

import numpy as np
import pytest
from PIL import Image

from studies.digits_scale import POOL, UPSTREAM_IMAGES, write_tables
from studies.full_scale import FullScale
from studies.lab import Lab, Trained
from vit_keras import data
from vit_keras.data.sources import digits
from vit_keras.experiments import training_run

pytestmark = pytest.mark.once


class Runs:
    """Stands in for `train_run`: records configurations, and interrupts the runs `stopped` once."""

    def __init__(self, stopped=()):
        self.trained, self.stopped = [], set(stopped)

    def __call__(self, config):
        self.trained.append(config)
        folder = pathlib.Path(config.workdir)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.json").write_text("[]")
        if config.name in self.stopped:
            self.stopped.remove(config.name)
            raise KeyboardInterrupt
        report = {"accuracy": 0.5 + 0.1 * config.seed}
        (folder / "report.json").write_text(json.dumps(report))
        return report


def test_finished_runs_are_reused_and_interrupted_ones_continue(
    tmp_path, monkeypatch, digits_scale
):
    def lab(runs):
        monkeypatch.setattr(training_run, "train_run", runs)
        return Lab(tmp_path, digits_scale())

    first = Runs(stopped=["ViT-B4-on-80"])
    lab(first).pretrain("ViT-b/4", "80")
    with pytest.raises(KeyboardInterrupt):
        lab(first).pretrain("ViT-B/4", "80")
    second = Runs()
    again = lab(second)
    trained = [again.pretrain(model, "80") for model in ("ViT-b/4", "ViT-B/4", "ViT-B/4")]
    assert [config.name for config in second.trained] == ["ViT-B4-on-80"]
    assert second.trained[0] == first.trained[1]  # the same run in the same folder
    assert [run.accuracy_percent for run in trained] == [50.0] * 3
    assert trained[1].folder == trained[2].folder != trained[0].folder


def test_tasks_and_pre_training_share_no_training_images(pictures):
    tables = write_tables(pictures)
    rows, paths = {}, {}
    for name in tables:
        with open(pictures / f"{name}.csv") as file:
            rows[name] = list(csv.DictReader(file))
        paths[name] = {row["path"] for row in rows[name] if row["split"] == "train"}
    assert len(paths["upstream"]) == UPSTREAM_IMAGES
    assert not paths["upstream"] & paths["ten"] and paths["unseen"] < paths["ten"]
    assert len(paths["ten"]) == 10 * POOL
    assert {row["label"] for row in rows["upstream"]} == set("0123456")
    first = [row["label"] for row in rows["ten"][:100]]
    assert all(first.count(label) == 10 for label in "0123456789")  # slices are balanced
    images, labels = digits()["train"]
    for row in rows["ten"][:20]:
        i = int(row["path"][-8:-4])
        assert labels[i] == int(row["label"])
        picture = np.asarray(Image.open(pictures / row["path"]))
        np.testing.assert_array_equal(picture, images[i, :, :, 0])
    dataset = data.load(tables["unseen"], 1)
    assert dataset.class_names == ("7", "8", "9") and len(dataset.split("test")) == 107


def test_full_scale_takes_the_papers_recipes(tmp_path):
    full = FullScale(data_dir="there", jft="folder:photos")
    config = full.pretraining("ViT-L/32", "JFT-300M[9000000]", {"seed": 2})
    assert (config.dataset, config.data.train_split) == ("folder:photos", "train[:9000000]")
    assert (config.model.variant, config.model.representation_size) == ("L/32", 1024)
    assert (config.optimizer.learning_rate, config.seed) == (6e-4, 2)
    config = full.pretraining("R50+ViT-B/32", "JFT-300M", {})
    assert config.model.variant == "R50+B/32" and config.optimizer.learning_rate == 8e-4
    config = full.pretraining("R152x2", "JFT-300M", {})
    assert config.model.arguments() and config.model.representation_size is None
    trained = Trained(tmp_path, config, {})
    tuned = full.transfer(trained, "CIFAR-100")
    assert tuned.sweep and tuned.model.variant == "R152x2" and tuned.data.data_dir == "there"
    assert tuned.dataset == "tfds:cifar100" and tuned.model.weights == str(tmp_path)
    with pytest.raises(ValueError, match="For ImageNet there are recipes.*Received: R50x1"):
        full.pretraining("R50x1", "ImageNet", {})
