"""What each study writes with made-up accuracies, one from its pixels, and the paper's numbers."""

import csv
import hashlib
import json

import pytest
from PIL import Image

import studies
import vit_keras
from studies import NAMES, figure5, study
from studies.command import COMMAND, PROGRAM
from studies.digits_scale import POOL, UPSTREAM_IMAGES, DigitsScale, write_tables
from studies.full_scale import FullScale
from studies.lab import Lab, Trained
from studies.results import Mean, published, rows_of, write_result
from studies.table5 import paper_rows
from vit_keras import commands
from vit_keras.config import DataConfig
from vit_keras.models import VisionTransformer

pytestmark = pytest.mark.on("torch")  # which compiles nothing
CLASSES = {"classes": [{"name": str(i)} for i in range(7)]}


def accuracy(name, seed):
    """A number between 0.5 and 1 that depends on the name of a run and its seed."""
    digest = hashlib.sha256(f"{name}/{seed}".encode()).digest()
    return 0.5 + digest[0] / 512


class MadeUp(Lab):
    """A lab whose runs are finished at once, with made-up accuracies."""

    def __init__(self, folder, scale):
        super().__init__(folder, scale)
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
        return Trained(folder, config, {"accuracy": final, **CLASSES})

    def few_shot(self, trained):
        return Mean(100 * accuracy(trained.config.name, trained.config.seed), 1.0)

    def _sweep(self, config):
        return [accuracy(config.name, seed) for seed in config.grid.seeds]


def inspected(folder=None):
    return VisionTransformer(16, 4, 24, 3, 2, 32, 10, channels=1, seed=0, name="inspected")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """The pictures of the studies, written once."""
    folder = tmp_path_factory.mktemp("pictures") / "data"
    write_tables(folder)
    return folder


FIRST = [("table1", "digits", 20), ("figure10", "digits", 1), ("table8", "digits", None)]
LATER = [(n, scale, 20) for n in NAMES for scale in ("digits", "full") if (n, scale) not in FIRST]


@pytest.mark.parametrize(
    ("name", "scale", "steps"),
    [*FIRST, *(pytest.param(*case, marks=pytest.mark.nightly) for case in LATER)],
)
def test_a_study_writes_its_files(tmp_path, monkeypatch, pictures, name, scale, steps):
    (tmp_path / "data").symlink_to(pictures)
    monkeypatch.setattr(vit_keras, "open", inspected)
    of_scale = DigitsScale(tmp_path, steps) if scale == "digits" else FullScale()
    result = study(name)(MadeUp(tmp_path, of_scale))
    table, picture, section = write_result(result, tmp_path)
    with open(table) as file:
        assert len(list(csv.DictReader(file))) == len(result.rows) > 2
    assert Image.open(picture).width and f"Ours: {result.finding}" in (text := section.read_text())
    assert not any(word in text for word in ("nan", "None", "Mean("))


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


def test_full_scale_takes_the_papers_recipes(tmp_path):
    full = FullScale(data_dir="there", jft="folder:photos")
    config = full.pretraining("ViT-L/32", "JFT-300M[9000000]", {"seed": 2})
    assert (config.dataset, config.data.train_split) == ("folder:photos", "train[:9000000]")
    assert (config.model.variant, config.model.representation_size) == ("L/32", 1024)
    assert (config.optimizer.learning_rate, config.seed) == (6e-4, 2)
    tuned = full.transfer(Trained(tmp_path, config, {}), "CIFAR-100")
    assert tuned.sweep and tuned.model.variant == "L/32" and tuned.data.data_dir == "there"
    assert tuned.dataset == "tfds:cifar100" and tuned.model.weights == str(tmp_path)
    with pytest.raises(ValueError, match="For ImageNet there are recipes.*Received: R50x1"):
        full.pretraining("R50x1", "ImageNet", {})


def test_tables_2_5_6_and_7_have_the_papers_values_and_agree_where_they_print_the_same_runs():
    two = {row["task"]: row for row in rows_of("table2")}
    assert two["ReaL"]["ViT-L/16 JFT"] == [90.54, 0.03] and two["Pets"]["Noisy Student L2"] is None
    assert published("table2")["core_days"] == [2500, 680, 230, 9900, 12300]
    five = {(task, model): numbers for task, model, *numbers in paper_rows()}
    assert five["CIFAR-100", "L/16"] == [86.35, 93.44, 94.04]
    six = {(row["variant"], row["epochs"]): row for row in rows_of("table6")}
    for model, epochs in (("B/16", 7), ("B/32", 7), ("L/16", 14), ("L/32", 7)):
        for task in ("ImageNet", "ReaL", "CIFAR-10", "CIFAR-100", "Pets", "Flowers"):
            assert six[model, epochs][task] == five[task, model][2]
    seven = rows_of("table7")
    tasks = [row.pop("task") for row in seven]
    assert tasks[-1] == "average"
    for name in seven[0]:
        *values, mean = [row[name] for row in seven]
        assert sum(values) / 5 == pytest.approx(mean, abs=0.005)
    for model in ("R50x1", "R152x2"):
        adam = [row[f"{model} Adam"] for row in seven[:-1]]
        assert adam == [six[model, 7][task] for task in tasks[:-1]]


def run(arguments):
    commands.run_command(COMMAND, arguments, PROGRAM)


def test_a_study_runs_from_pixels_to_its_files_once(tmp_path, pictures, monkeypatch, capsys):
    monkeypatch.setattr(figure5, "SMALL", ("ViT-b/4",))
    monkeypatch.setitem(figure5.TASKS, "digits", ("unseen digits",))
    command = ["figure5", "--out", str(tmp_path), "--steps", "4"]
    (tmp_path / "data").symlink_to(pictures)
    run(command)
    printed = capsys.readouterr().out
    assert printed.count("  trained ViT-b4-on-836") == 2  # and fine-tuned
    with open(tmp_path / "figure5.csv") as file:
        rows = list(csv.DictReader(file))
    (ours,) = [row for row in rows if row["source"] == "ours"]
    assert len(rows) == 1 + 18
    # 17 tokens: two blocks with 12 D² and attention, patches, head, and five norms with 5
    # operations an element. Training takes 3 passes over 4 x 64 images.
    block = 17 * (4 * 32 * 32 + 2 * 32 * 64) + 2 * 17 * 17 * 32
    norms = 5 * 5 * 17 * 32
    flops = 2 * (2 * block + 16 * 16 * 32 + 32 * 7 + norms) * 3 * 256
    assert float(ours["pre-training FLOPs"]) == pytest.approx(flops)
    assert 0 <= float(ours["average accuracy (%)"]) <= 100
    text = (tmp_path / "figure5.md").read_text()
    assert "Figure 5. Performance over pre-training compute" in text and "Setup:" in text
    run(command)
    assert "  trained" not in capsys.readouterr().out


def test_all_names_missing_data_and_reports_the_other_studies(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(studies, "NAMES", ("table4", "table8"))
    with pytest.raises(ValueError, match="1 of 2 have no result: table8"):
        run(["all", "--scale", "full", "--out", str(tmp_path)])
    assert "not measured: There is no table at 'jft300m.parquet'" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    assert "Table 4. Hyperparameters of fine-tuning" in page
    assert "Not measured: There is no table at" in page
