"""Every file of a run's folder, damaged at random: it is refused by its name, or read as it was."""

import json
import os
import pathlib
import shutil

import hypothesis
import pytest
from hypothesis import strategies as st

from vit_keras.config import Config, dump_config
from vit_keras.data.sources import RECORD as DATASET
from vit_keras.data.sources import check_unchanged
from vit_keras.evaluation.predictors import _manifest_of
from vit_keras.experiments.starting_point import Record
from vit_keras.experiments.training_run import FeaturesMeta
from vit_keras.runs import recorded_config
from vit_keras.support.checks import read_json
from vit_keras.support.machine import read_environment
from vit_keras.training.checkpoints import read_meta
from vit_keras.training.records import best_row, out_of_patience, read_rollbacks, read_rows

pytestmark = pytest.mark.once
EXAMPLES = {"config.yaml": 12}  # of many fields
SETTINGS = {"deadline": None, "database": None, "derandomize": True}


class Digits:
    """A data set of five pictures in memory."""

    name, kind, class_names = "digits", "classes", ("0", "1")

    class Split:
        labels_are_known, files = True, None

        def __init__(self):
            import numpy as np

            self.labels = np.array([0, 1, 1, 0, 1], "int32")

        def __len__(self):
            return 5

    def __init__(self):
        self.splits = {"train": self.Split()}


def judge(folder):
    rows = read_rows(folder)
    best_row(rows)
    out_of_patience(rows, 3)


ROWS = [{"step": 10, "loss": 2.0, "val_loss": 1.5, "val_accuracy": 0.5}, {"step": 20, "loss": 1.0}]
NOTE = {"kind": "labels", "thresholds": [0.5], "mean": None, "std": None, "shares": None}
MANIFEST = {
    "files": [{"file": "model.onnx", "bytes": 7}],
    "input": {"preprocessing": {"mean": [0.5], "crop_fraction": None}},
    "output": "sigmoid",
    "task": {**NOTE, "temperature": None},
}
# Each file: what it holds, and what reads it from a folder.
FILES = {
    "environment.json": (
        {"backend": "jax", "keras": "3.15.1", "cpus": 2, "kernels": {"attention": {"flash": True}}},
        read_environment,
    ),
    "metrics.json": (ROWS, judge),
    "rollbacks.json": ([{"cause": "the loss is NaN", "to": "step_000000010"}], read_rollbacks),
    DATASET: (None, lambda folder: check_unchanged(Digits(), folder)),
    "config.yaml": (None, recorded_config),
    "teacher.json": (
        {"teacher": "runs/a", "sha256": {"model.keras": "ab"}},
        lambda folder: read_json(folder / "teacher.json", Record),
    ),
    "features/meta.json": (
        {"weights": "ab", "data": "cd", "sha256": {"train/x.npy": "ef"}},
        lambda folder: read_json(folder / "features/meta.json", FeaturesMeta),
    ),
    "step_000000010/meta.json": (
        {
            "step": 10,
            "backend": "jax",
            "variables": {"model/0": ["a", [2], "float32"]},
            "best": None,
            "rows": 2,
            "rollbacks": 0,
            "files": {"state.npz": "ab", "state_00001.npz": "cd"},
        },
        lambda folder: read_meta(folder / "step_000000010"),
    ),
    "manifest.json": (MANIFEST, lambda folder: _manifest_of(folder / "model.onnx")),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with every file as a run writes it."""
    folder = tmp_path_factory.mktemp("run")
    for name, (content, _) in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        if content is not None:
            (folder / name).write_text(json.dumps(content, indent=1))
    check_unchanged(Digits(), folder)
    (folder / "config.yaml").write_text(dump_config(Config()))
    return folder


VALUES = st.recursive(
    st.sampled_from([None, True, -1, 10**400, 0.5, float("nan"), "", "x" * 300, "\ud800", [], {}]),
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(st.text(max_size=2), inside),
    max_leaves=3,
)


def places(value, path=()):
    """The path of every value in a tree."""
    yield path
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inside in items:
            yield from places(inside, (*path, key))


def replaced(tree, path, value):
    """The tree with another value at a path."""
    if not path:
        return value
    copy = tree.copy()
    copy[path[0]] = replaced(tree[path[0]], path[1:], value)
    return copy


@st.composite
def damaged(draw, content):
    """The bytes of a file after an accident, an edit, or an attack."""
    kind = draw(st.sampled_from(["bytes", "cut", "flip", "noise", "edit", "nest"]))
    if kind == "bytes":
        return draw(st.sampled_from([b"", b"\xff\xfe", b"null", b"[]", b"{}", b"5", b"\0" * 50]))
    if kind == "cut":
        return content[: draw(st.integers(0, len(content) - 1))]
    if kind == "flip":
        place, bit = draw(st.integers(0, len(content) - 1)), draw(st.integers(0, 7))
        return content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]
    if kind == "noise":
        place = draw(st.integers(0, len(content)))
        return content[:place] + draw(st.binary(min_size=1, max_size=20)) + content[place:]
    if kind == "nest":
        return draw(st.sampled_from([b"[", b'{"a":', b"{a: "])) * draw(st.sampled_from([50, 10**5]))
    try:
        tree = json.loads(content)
    except ValueError:
        import yaml

        tree = yaml.safe_load(content)
    path = draw(st.sampled_from(list(places(tree))))
    return json.dumps(replaced(tree, path, draw(VALUES))).encode()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_refused_by_its_name(whole, tmp_path, name):
    content, read = (whole / name).read_bytes(), FILES[name][1]

    @hypothesis.settings(max_examples=EXAMPLES.get(name, 60), **SETTINGS)
    @hypothesis.given(damaged(content))
    def check(data):
        file = tmp_path / name
        shutil.rmtree(tmp_path)
        file.parent.mkdir(parents=True)
        file.write_bytes(data)
        try:
            read(tmp_path)
        except (ValueError, FileNotFoundError) as error:
            assert not isinstance(error, (UnicodeDecodeError, json.JSONDecodeError))
            named = (pathlib.PurePath(name).name, "state.npz", "has changed since the run in")
            assert any(text in str(error) for text in named), str(error)

    check()


@pytest.mark.parametrize("name", FILES)
def test_a_folder_or_a_pipe_in_the_place_of_a_file_is_refused(tmp_path, name):
    read, file = FILES[name][1], tmp_path / name
    file.mkdir(parents=True)
    with pytest.raises((ValueError, OSError), match=pathlib.PurePath(name).name):
        read(tmp_path)
    file.rmdir()
    os.mkfifo(file)
    with pytest.raises((ValueError, OSError), match=pathlib.PurePath(name).name):
        read(tmp_path)
