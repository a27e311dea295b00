"""Every study at both scales on runs with made-up accuracies, and runs reused or continued."""

import csv
import hashlib
import json
import pathlib
import re
import statistics

import numpy as np
import pytest
from PIL import Image

import vit_keras
from studies import NAMES, figure8, study, table8
from studies.digits_scale import POOL, UPSTREAM_IMAGES, write_tables
from studies.full_scale import FullScale
from studies.lab import Lab, Trained
from studies.results import Mean, write_result
from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.experiments import training_run
from vit_keras.models import VisionTransformer

pytestmark = pytest.mark.once
CLASSES = {"classes": [{"name": str(i)} for i in range(7)]}


def accuracy(name, seed):
    """A number between 0.5 and 1 that depends on the name of a run and its seed."""
    digest = hashlib.sha256(f"{name}/{seed}".encode()).digest()
    return 0.5 + digest[0] / 512


class MadeUp(Lab):
    """A lab whose runs are finished at once, with made-up accuracies."""

    def __init__(self, folder, scale):
        super().__init__(folder, scale)
        self.configs = []
        trains = scale.model_to_inspect if scale.name == "digits" else lambda lab: None
        scale.model_to_inspect = lambda lab: (trains(lab), (inspected(), "digits", DataConfig()))[1]

    def require(self, upstreams, tasks=()):
        assert upstreams

    def train(self, config):
        folder = self.folder / "runs" / f"{config.name}-{config.seed}"
        folder.mkdir(parents=True, exist_ok=True)
        final = accuracy(config.name, config.seed)
        rows = [{"step": step, "fewshot_5": step / 100 * final} for step in (50, 100)]
        (folder / "metrics.json").write_text(json.dumps(rows))
        self.configs.append(config)
        return Trained(folder, config, {"accuracy": final, **CLASSES})

    def few_shot(self, trained):
        return Mean(100 * accuracy(trained.config.name, trained.config.seed), 1.0)

    def _sweep(self, config):
        return [accuracy(config.name, seed) for seed in config.grid.seeds]


def inspected(folder=None):
    return VisionTransformer(16, 4, 24, 3, 2, 32, 10, channels=1, seed=0, name="inspected")


@pytest.fixture
def lab(tmp_path, monkeypatch, digits_scale):
    monkeypatch.setattr(vit_keras, "open", inspected)
    scales = {"digits": digits_scale, "full": FullScale}
    return lambda scale, *steps: MadeUp(tmp_path, scales[scale](*steps))


FIRST = [("table1", "digits", 20), ("figure10", "digits", 1), ("table8", "digits", None)]
LATER = [(n, scale, 20) for n in NAMES for scale in ("digits", "full") if (n, scale) not in FIRST]


@pytest.mark.parametrize(
    ("name", "scale", "steps"),
    [*FIRST, *(pytest.param(*case, marks=pytest.mark.nightly) for case in LATER)],
)
def test_a_study_writes_its_files_and_trains_as_many_updates_as_it_states(
    lab, tmp_path, name, scale, steps
):
    made_up = lab(scale, *([steps] if scale == "digits" else []))
    result = study(name)(made_up)
    table, picture, section = write_result(result, tmp_path)
    with open(table) as file:
        assert len(list(csv.DictReader(file))) == len(result.rows) > 2
    assert np.asarray(Image.open(picture).convert("L")).std() > 5  # not blank
    text = section.read_text()
    assert result.finding.endswith(".") and f"Ours: {result.finding}" in text
    assert not any(word in text for word in ("nan", "None", "Mean("))
    if scale == "digits" and "updates" in result.setup:
        check_setup(name, result.setup, made_up.configs, steps)


SEEDS = {"one": 1, "two": 2, "five": 5}


def check_setup(name, setup, configs, steps):
    stated = re.findall(r"(\d+)(?: and (\d+))? updates", setup)
    pretrained = [config for config in configs if config.model.weights is None]
    trained = {config.total_steps for config in pretrained}
    assert trained == {int(number) for numbers in stated for number in numbers if number}
    assert steps is None or trained <= {steps, -(-steps // 2)}
    for config in configs:
        assert 1 <= config.eval_every <= config.total_steps
        assert config.model.weights is None or config.total_steps <= min(100, steps or 100)
    if said := re.search(r"(\w+) seeds?\b", setup):
        assert len({config.seed for config in pretrained}) == SEEDS[said[1].lower()]
    slices = {config.data.train_split for config in pretrained}
    assert slices <= {"train", *(f"train[:{number}]" for number in re.findall(r"\d+", setup))}


def test_table_8_has_means_and_standard_deviations_over_the_seeds(lab):
    result = table8.run(lab("digits"))
    for kind, at, shots, held_out, _ in result.rows:
        name = f"positions-{table8.FIELDS[kind]}-{at}"
        expected = [100 * accuracy(name, seed) for seed in range(5)]
        assert shots == held_out == (statistics.mean(expected), statistics.stdev(expected))
    none, *others = [row[2].mean for row in result.rows]
    gap, spread = statistics.mean(others) - none, max(others) - min(others)
    assert f"{gap:.1f} points below the mean of the others" in result.finding
    assert f"within {spread:.1f} points of each other" in result.finding


def test_figure_8_compares_costs_with_the_base(lab):
    rows = figure8.run(lab("digits")).rows
    costs = {(row[0], row[1]): row[2] for row in rows}
    assert costs["depth", 4] == costs["width", 48] == costs["MLP", 96] == costs["patch", 4] == 1
    assert costs["depth", 8] == pytest.approx(2, rel=0.05) and costs["patch", 2] > 3


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
    split = data.load("digits", 1).split("train")
    for row in rows["ten"][:20]:
        i = int(row["path"][-8:-4])
        assert split.labels[i] == int(row["label"])
        picture = np.asarray(Image.open(pictures / row["path"]))
        np.testing.assert_array_equal(picture, split.read(i)[:, :, 0])
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
