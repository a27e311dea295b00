"""The choice of a learning rate, cross-validation, soups, and models in checkpoints of runs."""

import dataclasses
import json
import shutil
import statistics

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path, write_picture
from tests.weights.builds import assert_equal_weights
from vit_keras import data, evaluation, experiments
from vit_keras.commands import run
from vit_keras.config import Config, DataConfig, GridConfig, ModelConfig, OptimizerConfig
from vit_keras.experiments import training_run
from vit_keras.models import Preprocessing, VisionTransformer
from vit_keras.support.command_line import UsageError
from vit_keras.weights import save_model

pytestmark = pytest.mark.on("torch")  # which compiles nothing

SIZES = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "mlp_dim": 16}
SMALL = [word for name, size in SIZES.items() for word in (f"--model.{name}", str(size))]
SMALL += ["--batch", "32", "--total_steps", "4", "--eval_every", "4", "--kernels", "default"]


def test_the_best_rate_trains_on_all(tmp_path, monkeypatch):
    ran = []

    def train_run(config):
        ran.append(config)
        if config.data.dev_percent:  # 0.01 and 0.1 do equally well
            return {"accuracy": {0.001: 0.5, 0.01: 0.75, 0.1: 0.75}[config.optimizer.learning_rate]}
        return {"accuracy": {3: 0.70, 4: 0.80, 5: 0.75}[config.seed]}

    monkeypatch.setattr(training_run, "train_run", train_run)
    grid = GridConfig(learning_rates=(0.1, 0.001, 0.01), seeds=(3, 4, 5), dev_percent=20.0)
    config = Config(grid=grid, sweep=True, workdir=str(tmp_path))
    table = experiments.sweep(config)
    trials, last = ran[:3], ran[3:]
    assert [run.optimizer.learning_rate for run in trials] == [0.001, 0.01, 0.1]
    assert all(run.data.dev_percent == 20 and run.seed == config.seed for run in trials)
    assert [run.seed for run in last] == [3, 4, 5]
    assert all(run.data.dev_percent == 0 for run in last)
    assert all(run.optimizer.learning_rate == 0.01 and not run.sweep for run in last)
    assert len({run.workdir for run in ran}) == 6
    assert f"mean ± std | 75.00 ± {100 * statistics.stdev([0.7, 0.8, 0.75]):.2f}%" in table
    assert "| 0.01 (chosen) | 75.00% |" in table
    assert "| learning rate | accuracy on the development split |" in table
    assert "| seed | accuracy on the test split, learning rate 0.01 |" in table
    assert (tmp_path / "sweep.md").read_text() == table
    assert json.loads((tmp_path / "sweep.json").read_text())["best"] == 0.01


def test_a_sweep_names_its_figure_and_what_chose_the_weights(tmp_path, monkeypatch):
    values = iter([0.5, -0.25, 0.75, None])
    monkeypatch.setattr(training_run, "train_run", lambda run: {"r2": next(values), "images": 7})
    grid = GridConfig(learning_rates=(0.1, 0.2), seeds=(0,))
    fields = {"task": "numbers", "patience": 3, "sweep": True, "grid": grid}
    config = Config(workdir=str(tmp_path), **fields)
    table = experiments.sweep(config)
    assert "R² on the development split" in table and "| 0.1 (chosen) | 0.5000 |" in table
    assert "R² on the test split, which chose the weights, learning rate 0.1" in table
    with pytest.raises(ValueError, match="R², which these images leave undefined. Received: 7 ima"):
        experiments.sweep(config)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The folder of a sweep of real runs, and the words of its command."""
    folder = tmp_path_factory.mktemp("sweep")
    grid = ["--sweep", "--grid.learning_rates", "[0.0001,0.01]", "--grid.seeds", "[0]"]
    words = ["train", *SMALL, *grid, "--workdir", str(folder)]
    run(words)
    return folder, words


@pytest.mark.slow
def test_a_sweep_of_real_runs_goes_on_where_it_was(swept, capsys):
    folder, words = swept
    table = (folder / "sweep.md").read_text()
    found = json.loads((folder / "sweep.json").read_text())
    report = json.loads((folder / "test-seed-0" / "report.json").read_text())
    assert report["images"] == 360 and report["accuracy"] == found["test"]["0"]
    report = json.loads((folder / "dev-lr-0.01" / "report.json").read_text())
    labels = data.load("digits", 1).split("train").labels
    held_out = sum(round(0.1 * count) for count in np.bincount(labels))
    assert report["images"] == held_out and report["accuracy"] == found["dev"]["0.01"]
    written = lambda: [path.stat().st_mtime_ns for path in sorted(folder.rglob("state.npz"))]
    before = written()
    run(words)  # finished runs are not trained again
    assert (folder / "sweep.md").read_text() == table and table in capsys.readouterr().out
    assert before == written()


def test_a_development_part_of_the_other_folds_chooses(tmp_path):
    fields = {"batch": 16, "total_steps": 90, "eval_every": 30, "folds": 3, "patience": 5}
    config = Config(
        model=ModelConfig(image_size=8, patch_size=4, channels=1, **SIZES),
        data=DataConfig(train_split="train[:90]", dev_percent=25.0),
        optimizer=OptimizerConfig(learning_rate=0.01),
        **{**fields, "calibrate": True, "kernels": "default", "workdir": str(tmp_path)},
    )
    table = experiments.cross_validate(config)
    reports = [json.loads((tmp_path / f"fold-{i}" / "report.json").read_text()) for i in range(3)]
    assert json.loads((tmp_path / "cross_validation.json").read_text()) == reports
    assert sum(report["images"] for report in reports) == 90
    accuracies = [100 * report["accuracy"] for report in reports]
    mean, std = np.mean(accuracies), np.std(accuracies, ddof=1)
    assert f"| mean ± std | accuracy {mean:.2f} ± {std:.2f}%" in table
    assert (tmp_path / "cross_validation.md").read_text() == table
    assert "which chose the weights" not in table
    dataset = data.load("digits", 1)
    for number, report in enumerate(reports):
        chosen = dataclasses.replace(config.data, fold=(number, 3))
        train, dev, test = splits = data.train_dev_test(dataset, chosen)
        rows = [{split.read(i).tobytes() for i in range(len(split))} for split in splits]
        assert not (rows[0] & rows[1] or rows[0] & rows[2] or rows[1] & rows[2])
        assert len(train) + len(dev) + len(test) == 90 and len(dev) < len(test)
        assert report["images"] == len(test) and "images_chose" not in report
        predictor, _ = evaluation.open_predictor(tmp_path / f"fold-{number}")
        outputs, labels = predictor.outputs(predictor.batches(test, 64))
        told = evaluation.report(outputs, labels, dataset.class_names, predictor.task)
        assert told["accuracy"] == report["accuracy"]


def model(rng, **options):
    return randomize(VisionTransformer(8, 4, 8, 1, 2, 12, 3, **options), rng)


@pytest.fixture
def files(tmp_path, rng):
    """Four models, of which one has dropout, which has a state of its own."""
    for number in range(4):
        made = model(rng, dropout_rate=0.1 * (number == 2), seed=number)
        made.class_names = ["a", "b", "c"]
        save_model(made, tmp_path / f"{number}.keras")
    return [str(tmp_path / f"{number}.keras") for number in range(4)]


def mean(files):
    """The mean of each weight, by NumPy in float64."""
    weights = [weights_by_path(vit_keras.open(file)) for file in files]
    return {
        name: np.mean([np.asarray(w[name], "float64") for w in weights], axis=0).astype("float32")
        for name in weights[0]
        if "seed" not in name
    }


def assert_mean(made, files):
    weights, expected = weights_by_path(made), mean(files)
    assert {name for name in weights if "seed" not in name} == expected.keys()
    for name, value in expected.items():
        assert_close(weights[name], value, rtol=1e-6, name=name)


def test_a_plain_soup_is_the_mean_and_a_greedy_one_follows_the_papers_recipe(files):
    """The score is the share of random images whose random labels are predicted."""
    made, rows = experiments.make_soup(files)
    assert_mean(made, files)
    assert rows == [{"model": file, "used": True} for file in files]
    assert list(made.class_names) == ["a", "b", "c"]
    rng = np.random.default_rng(0)
    images = rng.normal(size=(40, 8, 8, 3)).astype("float32")
    labels = rng.integers(0, 3, 40)
    judge = lambda m: float((to_numpy(m.predict_on_batch(images)).argmax(-1) == labels).mean())
    made, rows = experiments.make_soup(files, judge)
    blank, alone = vit_keras.open(files[0]), {file: mean([file]) for file in files}

    def score(chosen):
        for variable in blank.weights:
            if "seed" not in variable.path:
                arrays = [np.asarray(alone[file][variable.path], "float64") for file in chosen]
                variable.assign(np.mean(arrays, axis=0))
        return judge(blank)

    order = sorted(files, key=lambda file: -score([file]))
    chosen = order[:1]
    for file in order[1:]:
        if score([*chosen, file]) >= score(chosen):
            chosen.append(file)
    assert [row["model"] for row in rows] == order
    assert [row["model"] for row in rows if row["used"]] == chosen
    assert [row["score"] for row in rows] == [score([file]) for file in order]
    assert_mean(made, chosen)


def test_a_judge_reads_the_columns_that_hold_the_labels(files, tmp_path, rng):
    pictures = [write_picture(tmp_path / f"{i}.png", rng, (8, 8)) for i in range(12)]
    kinds = rng.integers(0, 3, (12, 2))
    lines = [f"{i}.png,{'abc'[k]},{'abc'[other]},test" for i, (k, other) in enumerate(kinds)]
    (tmp_path / "a.csv").write_text("\n".join(["path,label,kind,split", *lines, ""]))
    options = ["--dataset", f"table:{tmp_path}/a.csv", "--split", "test", "--label_columns", "kind"]
    run(["soup", *files[:2], "--greedy", *options, "--out", str(tmp_path / "soup.keras")])
    images = np.stack(pictures) / np.float32(127.5) - 1
    for row in json.loads((tmp_path / "soup.json").read_text()):
        predicted = to_numpy(vit_keras.open(row["model"]).predict_on_batch(images)).argmax(-1)
        assert row["score"] == pytest.approx(np.mean(predicted == kinds[:, 1]))


def test_all_differences_are_named(files, tmp_path, rng):
    other = model(rng, classifier="gap", gelu="tanh")
    other.preprocessing, other.class_names = Preprocessing(mean=(0.4,)), ["c", "b", "a"]
    save_model(other, tmp_path / "other.keras")
    with pytest.raises(ValueError, match="must share their architecture, preproc") as refused:
        experiments.make_soup([files[0], tmp_path / "other.keras"])
    for difference in (
        "cls/cls: (1, 1, 8) there, None here",
        "encoderblock_0.gelu: 'exact' there, 'tanh' here",
        "preprocessing.mean: (0.5,) there, (0.4,) here",
        "class_names: ('a', 'b', 'c') there, ('c', 'b', 'a') here",
    ):
        assert difference in str(refused.value)


def test_the_trials_of_a_sweep_are_chosen_by_their_development_split(swept, tmp_path, capsys):
    out, trials = tmp_path / "soup.keras", sorted(swept[0].glob("dev-lr-*"))
    run(["soup", str(swept[0]), "--greedy", "--out", str(out)])
    rows = json.loads((tmp_path / "soup.json").read_text())
    read = lambda trial: json.loads((trial / "report.json").read_text())["accuracy"]
    reports = {str(trial): read(trial) for trial in trials}
    assert {row["model"]: row["score"] for row in rows} == pytest.approx(reports)
    assert rows[0]["used"] and rows[0]["score"] == max(reports.values())
    assert rows[1]["used"] == (rows[1]["soup_score"] >= rows[0]["soup_score"])
    assert_mean(vit_keras.open(out), [f"{row['model']}/model.keras" for row in rows if row["used"]])
    used = sum(row["used"] for row in rows)
    assert f"{out}: the mean of {used} of 2 models" in capsys.readouterr().out


def test_a_step_of_a_run_becomes_one_file_or_is_refused(swept, tmp_path):
    """tests/training/test_runs.py opens one with an average."""
    whole = swept[0] / "test-seed-0"
    name = "checkpoints/step_000000004"
    run(["convert", str(whole / name), str(tmp_path / "out.keras")])
    trained, converted = map(vit_keras.open, (whole / "model.keras", tmp_path / "out.keras"))
    assert_equal_weights(trained, converted)
    assert converted.get_config() == trained.get_config()  # with the names of the classes

    folder, command = tmp_path / "run", ["convert", str(tmp_path / "run" / name), "out.keras"]
    shutil.copytree(whole / name, folder / name)
    with pytest.raises(
        FileNotFoundError, match="run' is not a run's folder: it has no config.yaml"
    ):
        run(command)
    for file in ("dataset.json", "config.yaml"):
        shutil.copy(whole / file, folder)
    with pytest.raises(UsageError, match="take no --source and.*Received: source=timm"):
        run([*command, "--source", "timm"])
    text = (folder / "config.yaml").read_text().replace("label_smoothing: 0.1", "")
    changed = text.replace("task: classes", "task: numbers").replace("loss: softmax", "loss: mse")
    (folder / "config.yaml").write_text(changed)
    with pytest.raises(ValueError, match="labels in a run of numbers.*step_000000004"):
        run(command)
