"""The records in a run's folder, lost or damaged: no row is lost, and every remedy works."""

import json
import shutil

import pytest

from tests.helpers import ROOT
from tests.training.small import Killed, small_run, without_rate
from vit_keras import data
from vit_keras.commands import run
from vit_keras.config import DataConfig
from vit_keras.training import callbacks

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
def test_damaged_metrics_are_refused(folder, damage, expected):
    path = folder / "metrics.json"
    kept = path.read_bytes()
    DAMAGE[damage](path)
    before = contents(folder)
    with pytest.raises(ValueError, match=r"metrics.json' .*Restore it, or begin another"):
        small_run(folder)
    assert contents(folder) == before
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.write_bytes(kept)
    assert rows_of(folder) == expected


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
