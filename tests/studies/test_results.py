"""The paper's numbers agree with each other, and the files of a result hold its values."""

import csv

import pytest

import studies
from studies import figure5
from studies.command import COMMAND, PROGRAM
from studies.results import published, rows_of
from studies.table5 import paper_rows
from vit_keras import commands


def rows_by(name, key):
    return {row[key]: row for row in rows_of(name)}


@pytest.mark.once
def test_tables_2_5_6_and_7_have_the_papers_values_and_agree_where_they_print_the_same_runs():
    two = rows_by("table2", "task")
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


@pytest.mark.on("torch")
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


@pytest.mark.once
def test_all_names_missing_data_and_reports_the_other_studies(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(studies, "NAMES", ("table4", "table8"))
    with pytest.raises(ValueError, match="1 of 2 have no result: table8"):
        run(["all", "--scale", "full", "--out", str(tmp_path)])
    assert "not measured: There is no table at 'jft300m.parquet'" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    assert "Table 4. Hyperparameters of fine-tuning" in page
    assert "Not measured: There is no table at" in page
