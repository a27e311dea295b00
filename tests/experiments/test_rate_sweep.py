"""The choice of a learning rate, and the runs that follow it."""

import dataclasses
import json
import statistics

import numpy as np
import pytest

from vit_keras import data
from vit_keras.commands import run
from vit_keras.config import GridConfig, read_config
from vit_keras.experiments import sweep, training_run

pytestmark = pytest.mark.on("torch")  # which compiles nothing

DIGITS = read_config("digits")
GRID = GridConfig(learning_rates=(0.1, 0.001, 0.01), seeds=(3, 4, 5), dev_percent=20.0)


def test_the_best_rate_trains_on_all(tmp_path, monkeypatch):
    ran = []

    def train_run(config):
        ran.append(config)
        if config.data.dev_percent:  # 0.01 and 0.1 do equally well
            return {"accuracy": {0.001: 0.5, 0.01: 0.75, 0.1: 0.75}[config.optimizer.learning_rate]}
        return {"accuracy": {3: 0.70, 4: 0.80, 5: 0.75}[config.seed]}

    monkeypatch.setattr(training_run, "train_run", train_run)
    config = dataclasses.replace(DIGITS, grid=GRID, sweep=True, workdir=str(tmp_path))
    table = sweep(config)
    trials, last = ran[:3], ran[3:]
    assert [run.optimizer.learning_rate for run in trials] == [0.001, 0.01, 0.1]
    assert all(run.data.dev_percent == 20 and run.seed == config.seed for run in trials)
    assert [run.seed for run in last] == [3, 4, 5]
    assert all(run.data.dev_percent == 0 for run in last)
    assert all(run.optimizer.learning_rate == 0.01 and not run.sweep for run in last)
    assert len({run.workdir for run in ran}) == 6
    assert f"mean ± std | 75.00 ± {100 * statistics.stdev([0.7, 0.8, 0.75]):.2f} %" in table
    assert "| 0.01 (chosen) | 75.00 % |" in table
    assert (tmp_path / "sweep.md").read_text() == table
    assert json.loads((tmp_path / "sweep.json").read_text())["best"] == 0.01


@pytest.mark.slow
def test_a_sweep_of_real_runs_goes_on_where_it_was(tmp_path, capsys):
    small = [
        *("--model.hidden_size", "16", "--model.num_layers", "1", "--model.num_heads", "2"),
        *("--model.mlp_dim", "16", "--batch", "32", "--total_steps", "4", "--eval_every", "4"),
        *("--sweep", "--grid.learning_rates", "[0.0001,0.01]", "--grid.seeds", "[0,1]"),
        *("--workdir", str(tmp_path)),
    ]
    run(["train", *small])
    table = (tmp_path / "sweep.md").read_text()
    assert table in capsys.readouterr().out
    found = json.loads((tmp_path / "sweep.json").read_text())
    for seed in (0, 1):
        report = json.loads((tmp_path / f"test-seed-{seed}" / "report.json").read_text())
        assert report["images"] == 360 and report["accuracy"] == found["test"][str(seed)]
    report = json.loads((tmp_path / "dev-lr-0.01" / "report.json").read_text())
    labels = data.load("digits", 1).split("train").labels
    held_out = sum(round(0.1 * count) for count in np.bincount(labels))
    assert report["images"] == held_out and report["accuracy"] == found["dev"]["0.01"]
    run(["train", *small])  # finished runs are not trained again
    assert (tmp_path / "sweep.md").read_text() == table
