"""Soups are means of models, compared with NumPy and with the paper's recipe written out."""

import json
import re

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras import experiments
from vit_keras.commands import run
from vit_keras.models import Preprocessing, VisionTransformer
from vit_keras.weights import save_model

pytestmark = pytest.mark.on("torch")

SIZES = (8, 4, 8, 1, 2, 12, 3)


def model(rng, **options):
    return randomize(VisionTransformer(*SIZES, **options), rng)


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


def test_a_plain_soup_is_the_mean(files):
    made, rows = experiments.make_soup(files)
    assert_mean(made, files)
    assert rows == [{"model": file, "used": True} for file in files]
    assert list(made.class_names) == ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(2))
def test_a_greedy_soup_follows_the_recipe_of_the_paper(files, seed):
    """The score is the share of random images whose random labels are predicted."""
    rng = np.random.default_rng(seed)
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


def test_all_differences_are_named(files, tmp_path, rng):
    others = {
        "gap": model(rng, classifier="gap"),
        "gelu": model(rng, gelu="tanh"),
        "named": model(rng),
    }
    others["gelu"].preprocessing = Preprocessing(mean=(0.4,))
    others["named"].class_names = ["c", "b", "a"]
    for name, other in others.items():
        save_model(other, tmp_path / f"{name}.keras")
    with pytest.raises(ValueError, match="must share their architecture, preproc") as refused:
        experiments.make_soup([files[0], *(tmp_path / f"{name}.keras" for name in others)])
    text = str(refused.value)
    for line in (
        r"cls/cls: \(1, 1, 8\) in .*0.keras, none in .*gap.keras",
        r"encoderblock_0.gelu: exact in .*0.keras, tanh in .*gelu.keras",
        r"preprocessing.mean: \(0.5,\) in .*, \(0.4,\) in .*gelu.keras",
        r"class_names: \('a', 'b', 'c'\) in .*, \('c', 'b', 'a'\) in .*named.keras",
    ):
        assert any(re.search(line, x) for x in text.splitlines()), line
    with pytest.raises(ValueError, match="at least two models. Received: .*0.keras"):
        experiments.make_soup(files[:1])


TRAIN = [
    *("--model.hidden_size", "12", "--model.num_layers", "1", "--model.num_heads", "2"),
    *("--model.mlp_dim", "12", "--batch", "32", "--total_steps", "12", "--eval_every", "12"),
    *("--optimizer.warmup_steps", "0", "--kernels", "default"),
]


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """Two trials of a sweep, as `train --sweep` lays them out."""
    folder = tmp_path_factory.mktemp("runs") / "sweep"
    for rate in ("0.001", "0.01"):
        more = ["--optimizer.learning_rate", rate, "--workdir", str(folder / f"dev-lr-{rate}")]
        run(["train", *TRAIN, "--data.dev_percent", "20", *more])
    return folder


def test_the_trials_of_a_sweep_are_chosen_by_their_development_split(trials, tmp_path, capsys):
    out = tmp_path / "soup.keras"
    run(["soup", str(trials), "--greedy", "--out", str(out)])
    rows = json.loads((tmp_path / "soup.json").read_text())
    reports = {
        str(trial): json.loads((trial / "report.json").read_text())["accuracy"]
        for trial in sorted(trials.iterdir())
    }
    assert {row["model"]: row["score"] for row in rows} == pytest.approx(reports)
    assert rows[0]["used"] and rows[0]["score"] == max(reports.values())
    assert rows[1]["used"] == (rows[1]["soup_score"] >= rows[0]["soup_score"])
    assert_mean(vit_keras.open(out), [f"{row['model']}/model.keras" for row in rows if row["used"]])
    used = sum(row["used"] for row in rows)
    assert f"{out}: the mean of {used} of 2 models" in capsys.readouterr().out
