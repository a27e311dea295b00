"""The command: what it prints, writes, reuses and refuses."""

import csv

import pytest

import studies
from studies import figure5
from studies.command import COMMAND, PROGRAM
from vit_keras import commands

pytestmark = pytest.mark.once


def run(arguments):
    commands.run_command(COMMAND, arguments, PROGRAM)


def test_a_study_runs_from_pixels_to_its_files_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figure5, "SMALL", ("ViT-b/4",))
    monkeypatch.setitem(figure5.TASKS, "digits", ("unseen digits",))
    command = ["figure5", "--out", str(tmp_path), "--steps", "4"]
    run(command)
    printed = capsys.readouterr().out
    assert printed.count("  trained ViT-b4-on-836") == 2  # and fine-tuned
    with open(tmp_path / "figure5.csv") as file:
        rows = list(csv.DictReader(file))
    ours = [row for row in rows if row["source"] == "ours"]
    assert len(ours) == 1 and len(rows) == 1 + 18
    # 17 tokens: two blocks with 12 D² and attention, patches, head, and five norms with 5
    # operations an element. Training takes 3 passes over 4 x 64 images.
    block = 17 * (4 * 32 * 32 + 2 * 32 * 64) + 2 * 17 * 17 * 32
    norms = 5 * 5 * 17 * 32
    flops = 2 * (2 * block + 16 * 16 * 32 + 32 * 7 + norms) * 3 * 256
    assert float(ours[0]["pre-training FLOPs"]) == pytest.approx(flops)
    assert 0 <= float(ours[0]["average accuracy (%)"]) <= 100
    text = (tmp_path / "figure5.md").read_text()
    assert "Figure 5. Performance over pre-training compute" in text and "Setup:" in text
    assert (tmp_path / "figure5.png").stat().st_size > 10_000

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
