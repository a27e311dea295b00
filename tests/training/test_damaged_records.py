"""The records in a run's folder, lost or damaged: no row is lost, and every remedy works."""

import json
import os
import shutil

import pytest

from tests.helpers import ROOT
from tests.training.small import Killed, small_run, without_rate
from vit_keras import data
from vit_keras.commands import run
from vit_keras.config import DataConfig
from vit_keras.training import callbacks
from vit_keras.training.records import read_rows

pytestmark = pytest.mark.on("torch")  # which compiles nothing

TINY = [
    *("train", "--config", str(ROOT / "configs" / "digits.yaml"), "--kernels", "default"),
    *("--model.hidden_size", "8", "--model.num_layers", "1", "--model.num_heads", "2"),
    *("--model.mlp_dim", "8", "--batch", "16", "--total_steps", "4", "--eval_every", "2"),
    *("--checkpoint_every", "1", "--keep_checkpoints", "2", "--optimizer.warmup_steps", "0"),
]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """The folders of a whole run and of one that was killed in its last evaluation."""
    folder = tmp_path_factory.mktemp("records")

    class Dying(callbacks.Recorder):
        def on_test_begin(self, logs=None):
            super().on_test_begin(logs)
            if self.step == 12:
                raise Killed

    small_run(folder / "whole")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(callbacks, "Recorder", Dying)
        small_run(folder / "killed")
    return folder


@pytest.fixture(params=["whole", "killed"])
def folder(request, records, tmp_path):
    """A copy of one of them in the place that its configuration names."""
    config = records / request.param / "config.yaml"
    shutil.copytree(records / request.param, tmp_path / "run")
    text = config.read_text().replace(str(config.parent), str(tmp_path / "run"))
    (tmp_path / "run" / "config.yaml").write_text(text)
    return tmp_path / "run"


@pytest.fixture
def expected(records):
    return without_rate(json.loads((records / "whole" / "metrics.json").read_text()))


def rows_of(folder):
    small_run(folder)
    rows = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").unlink()
    assert read_rows(folder) == rows  # the same numbers from metrics.csv
    return without_rate(rows)


def contents(folder):
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name[0] != "."
    }


DAMAGE = {
    "[]": lambda path: path.write_text("[]"),
    "empty": lambda path: path.write_text(""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "without its first row": lambda path: path.write_text(
        json.dumps(json.loads(path.read_text())[1:])
    ),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_metrics_are_refused_until_those_of_the_csv_are_taken(folder, damage, expected):
    path = folder / "metrics.json"
    DAMAGE[damage](path)
    before = contents(folder)
    with pytest.raises(
        ValueError, match=r"metrics.json' .*Delete it: the rows are then taken from"
    ):
        small_run(folder)
    assert contents(folder) == before
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert rows_of(folder) == expected


CSV = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_text(""),
    "cut in a number": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "cut after a row": lambda path: path.write_text(path.read_text().partition("\n")[0] + "\n"),
    "with another column": lambda path: path.write_text(path.read_text().rstrip() + ",5\n"),
    "no text": lambda path: path.write_bytes(b"\xff\xfe"),
}


@pytest.mark.parametrize("damage", CSV)
def test_a_damaged_csv_is_written_again_or_no_source_of_rows(folder, damage, expected):
    table, path = folder / "metrics.csv", folder / "metrics.json"
    whole = table.read_text()
    CSV[damage](table)
    kept = path.read_text()
    path.unlink()
    before = contents(folder)
    with pytest.raises(ValueError, match=r"must hold at least \d rows.*Restore it, or begin anoth"):
        small_run(folder)
    assert contents(folder) == before
    path.write_text(kept)
    assert rows_of(folder) == expected
    assert table.read_text().startswith(whole.splitlines()[0] + "\n")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The folder of a run on digits, and the commands that read it."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    run([*TINY, "--workdir", str(folder)])
    shutil.copytree(folder, folder.parent / "kept")
    return folder


@pytest.fixture
def again(digits):
    """The run as it was, and the command that began it."""
    shutil.rmtree(digits)
    shutil.copytree(digits.parent / "kept", digits)
    return digits, lambda: run([*TINY, "--workdir", str(digits)])


FOLDERS = ("model.keras", "report.json", "curves.png", "metrics.csv", ".lock")


@pytest.mark.parametrize("name", [*FOLDERS, "checkpoints", "tensorboard"])
def test_what_stands_in_the_way_of_a_runs_file_is_named(again, name):
    folder, train = again
    path, kind = folder / name, "file"
    if path.is_dir():
        kind = "folder"
        shutil.rmtree(path)
        path.write_text("notes")
    else:
        path.unlink(missing_ok=True)
        path.mkdir()
        (path / "notes.txt").write_text("notes")
    with pytest.raises(
        ValueError, match=f"{name}' must be a readable {kind}, .*, or delete it and"
    ):
        train()
    path.rename(folder / "renamed")
    train()
    run(["evaluate", str(folder)])
    rows = read_rows(folder), read_rows(folder.parent / "kept")
    assert without_rate(rows[0]) == without_rate(rows[1])


@pytest.mark.parametrize("name", ["dataset.json", "metrics.json", "model.keras", "checkpoints"])
def test_a_link_to_nothing_is_named_and_nothing_is_written(again, name):
    folder, train = again
    (folder / name).rename(folder.parent / "moved")
    (folder / name).symlink_to(folder.parent / "elsewhere")
    with pytest.raises(ValueError, match=f"{name}' must be .*, not a broken link. Restore"):
        train()
    assert not (folder.parent / "elsewhere").exists()
    (folder.parent / "moved").rename(folder.parent / "elsewhere")
    train()
    (shutil.rmtree if name == "checkpoints" else os.remove)(folder.parent / "elsewhere")


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", None])
def test_a_model_that_cannot_be_opened_is_made_again(again, damage):
    folder, train = again
    path = folder / "model.keras"
    path.unlink()
    path.mkdir() if damage is None else path.write_bytes(damage)
    with pytest.raises(
        (ValueError, OSError),
        match="model.keras.*(the command that began|run its command again)",
    ):
        run(["evaluate", str(folder)])
    path.rmdir() if damage is None else path.unlink()
    train()
    run(["evaluate", str(folder)])


def class_renamed(record):
    record["classes"][3] = "four"


def picture_changed(record):
    record["sha256"]["test"] = record["sha256"]["test"][::-1]


@pytest.mark.parametrize("edit", [class_renamed, picture_changed])
def test_an_edited_dataset_json_is_damaged_and_no_change_of_the_data(again, edit):
    folder, train = again
    path = folder / "dataset.json"
    kept = path.read_text()
    edit(record := json.loads(kept))
    path.write_text(json.dumps(record))
    with pytest.raises(
        ValueError, match=r"dataset.json' is damaged \(its `(classes|sha256)` was changed"
    ):
        train()
    path.unlink()
    with pytest.raises(FileNotFoundError, match="dataset.json'. Restore it, or begin another run"):
        train()
    path.write_text(kept)
    train()


@pytest.mark.parametrize("edit", ["backend", "kernels"])
def test_an_edited_environment_json_is_damaged(again, edit):
    folder, train = again
    path = folder / "environment.json"
    kept = path.read_text()
    path.write_text(
        json.dumps({**json.loads(kept), edit: "jax" if edit == "backend" else {}, "cpus": 99})
    )
    with pytest.raises(ValueError, match=r"environment.json' is damaged \(its `\w+` was changed"):
        train()
    path.write_text(kept)
    train()


def test_changed_pictures_are_told_from_a_changed_record(tmp_path):
    from PIL import Image

    for name, level in (("ant/1", 10), ("bee/1", 20)):
        (tmp_path / "photos" / name).parent.mkdir(parents=True)
        Image.new("L", (8, 8), level).save(tmp_path / "photos" / f"{name}.png")
    load = lambda: data.load(f"folder:{tmp_path / 'photos'}", 1, DataConfig(test_percent=0))
    (tmp_path / "run").mkdir()
    data.check_unchanged(load(), tmp_path / "run")
    (tmp_path / "photos" / "bee").rename(tmp_path / "photos" / "wasp")
    with pytest.raises(
        ValueError, match="has changed since .*classes added: 'wasp'.*Restore the data"
    ):
        data.check_unchanged(load(), tmp_path / "run")
