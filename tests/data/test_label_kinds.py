"""Data sets of several labels and of numbers: tables, linked pictures, targets, and their order."""

import os

import numpy as np
import pytest

from tests.data.gray_pictures import grays, write
from tests.data.test_tables import stored
from vit_keras import data
from vit_keras.config import AugmentConfig, Config, DataConfig
from vit_keras.models import Preprocessing
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.once

nan = np.nan
COUNT = 6


@pytest.fixture
def pictures(tmp_path):
    for value in range(COUNT):
        write(tmp_path / f"{value}.png", value)
    return {
        "path": [f"{value}.png" for value in range(COUNT)],
        "split": ["train"] * 4 + ["test"] * 2,
    }


def opened(tmp_path, columns, *, suffix=".parquet", task="auto", **fields):
    name = stored(tmp_path / f"rows{suffix}", columns)
    return data.load(name, 1, DataConfig(**fields), task)


def labels_of(dataset):
    return np.concatenate([dataset.split(name).labels for name in ("train", "test")])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_of_zeros_and_ones_are_labels(pictures, tmp_path, suffix):
    pictures |= {"sun": [1, 0, None, 1, 0, 1], "sea": [0, 1, 1, None, None, 0]}
    dataset = opened(tmp_path, pictures, suffix=suffix, label_columns="sun, sea")
    assert dataset.kind == "labels" and dataset.class_names == ("sun", "sea")
    expected = [[1, 0], [0, 1], [nan, 1], [1, nan], [0, nan], [1, 0]]
    np.testing.assert_array_equal(labels_of(dataset), expected)
    assert data.count_classes(dataset, dataset.splits)["train"] == {"sun": 2, "sea": 2}
    assert data.describe_splits(dataset, dataset.split("train"), dataset.split("test"))[0].endswith(
        "4 pictures of 2 labels, and 2 (33.3%) held out; each label has 2"
    )


def test_a_list_in_a_cell_is_several_labels(pictures, tmp_path):
    lists = [["sun"], ["sea", "sun"], [], None, ["sea"], ["sun"]]
    dataset = opened(tmp_path, {**pictures, "label": lists})
    expected = [[0, 1], [1, 1], [0, 0], [nan, nan], [1, 0], [0, 1]]
    assert dataset.kind == "labels" and dataset.class_names == ("sea", "sun")
    np.testing.assert_array_equal(labels_of(dataset), expected)
    texts = ["sun", "sea; sun", "", "", "sea", "sun"]  # CSV has no lists, and nothing is no label
    columns = {**pictures, "label": texts}
    options = {"suffix": ".csv", "task": "labels", "label_separator": ";"}
    dataset = opened(tmp_path, columns, **options)
    expected[3] = [0, 0]
    np.testing.assert_array_equal(labels_of(dataset), expected)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_fractions_are_numbers(pictures, tmp_path, suffix):
    values = [1.5, 2.0, None, -3.25, 0.0, 7.0]
    dataset = opened(tmp_path, {**pictures, "label": values}, suffix=suffix)
    assert dataset.kind == "numbers" and dataset.class_names == ("label",)
    np.testing.assert_array_equal(labels_of(dataset)[:, 0], np.array(values, "float32"))
    whole = {**pictures, "age": [30, 40, 50, 60, 70, 80]}
    dataset = opened(tmp_path, whole, label_columns="age", task="numbers")
    np.testing.assert_array_equal(labels_of(dataset)[:, 0], whole["age"])


def test_numbers_become_standardized_targets(pictures, tmp_path):
    values = np.array([[1, 10], [3, nan], [nan, 30], [5, 20], [7, 7], [0, 0]])
    columns = {"a": values[:, 0], "b": [None if np.isnan(v) else v for v in values[:, 1]]}
    columns["a"] = [None if np.isnan(v) else v for v in values[:, 0]]
    dataset = opened(tmp_path, pictures | columns, label_columns="a,b", task="numbers")
    train = dataset.split("train")
    task = data.learned_task(dataset, train, Config())
    known = [values[:4, k][~np.isnan(values[:4, k])] for k in range(2)]
    np.testing.assert_allclose(task.mean, [v.mean() for v in known])
    np.testing.assert_allclose(task.std, [v.std() for v in known])
    ((_, targets),) = data.eval_batches(
        train, image_size=(8, 8), preprocessing=Preprocessing(), batch=4, num_classes=2, task=task
    )
    np.testing.assert_allclose(targets, (values[:4] - task.mean) / task.std, rtol=1e-6)
    assert data.captions_of(targets, ("a", "b"), task) == ["a 1, b 10", "a 3", "b 30", "a 5, b 20"]


def test_a_picture_in_several_folders_has_several_labels(tmp_path):
    for value, folder in enumerate(("sea", "sea", "sun", "sun", "sand")):
        write(tmp_path / folder / f"{value}.png", value)
    os.symlink(tmp_path / "sea" / "0.png", tmp_path / "sun" / "again.png")
    os.link(tmp_path / "sea" / "0.png", tmp_path / "sand" / "0.png")
    config = DataConfig(test_percent=0, test_split="train")
    dataset = data.load(f"folder:{tmp_path}", 1, config)
    split = dataset.split("train")
    assert dataset.kind == "labels" and dataset.class_names == ("sand", "sea", "sun")
    found = dict(zip(grays(split), split.labels.tolist()))
    assert found == {0: [1, 1, 1], 1: [0, 1, 0], 2: [0, 0, 1], 3: [0, 0, 1], 4: [1, 0, 0]}
    as_classes = data.load(f"folder:{tmp_path}", 1, config, "classes")
    assert as_classes.kind == "classes" and len(as_classes.split("train")) == 7


def test_balanced_batches_go_on_where_they_stopped():
    images = np.arange(40, dtype="uint8").reshape(-1, 1, 1, 1).repeat(4, 1).repeat(4, 2)
    split = data.from_arrays(images, [0] * 36 + [1] * 4)
    options = {
        "image_size": (4, 4),
        "preprocessing": Preprocessing(mean=(0.0,), std=(1 / 255,)),
        "batch": 4,
        "augment_config": AugmentConfig(),
        "seed": 0,
        "total_steps": 10,
        "num_classes": 2,
        "is_balanced": True,
    }
    whole = list(data.train_batches(split, start_step=0, **options))
    rest = list(data.train_batches(split, start_step=6, **options))
    for (images, targets), (again, targets_again) in zip(whole[6:], rest, strict=True):
        np.testing.assert_array_equal(images, again)
        np.testing.assert_array_equal(targets, targets_again)
    assert np.mean([targets for _, targets in whole], axis=(0, 1)).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("columns", "fields", "message"),
    [
        ({"a": [0, 1, 2, 0, 0, 0]}, {"label_columns": "a", "task": "labels"}, None),
        (
            {"a": [0, 1, 2, 0, 0, 0], "b": [1] * 6},
            {"label_columns": "a,b", "task": "labels"},
            r"The column 'a' of .* must hold 0, 1 or nothing in each row. Received: '2' in row 3",
        ),
        (
            {"a": ["x"] * 6},
            {"label_columns": "a", "task": "numbers"},
            "The column 'a' of .* must hold a number or nothing .* Received: 'x' in row 1",
        ),
        (
            {"a": [0] * 6, "b": [1] * 5 + [0]},
            {"label_columns": "a,b", "task": "classes"},
            "exactly one is 1 in each row. Received: .*'a', 'b'.*1 rows that .* such as row 6",
        ),
        ({"a": [0] * 6, "b": [0] * 6}, {}, "needs a column of labels.*in data.label_columns"),
        (
            {"a": [0, 0, 0, 0, 1, 1], "b": [1, 0, 1, 0, 1, 0]},
            {"label_columns": "a,b"},
            "All labels must have training images. Received: .*, which has .'a'. only in other",
        ),
    ],
)
def test_faults_of_labels_are_named(pictures, tmp_path, columns, fields, message):
    if message is None:  # one column of numbers holds names of labels
        assert opened(tmp_path, pictures | columns, **fields).class_names == ("0", "1", "2")
        return
    with pytest.raises(ValueError, match=message):
        opened(tmp_path, pictures | columns, **fields)


def test_losses_that_balance_need_all_classes():
    dataset = data.load("digits", 1)
    train = dataset.split("train")
    config = Config(balance="weights")
    shares = data.learned_task(dataset, train, config).shares
    np.testing.assert_allclose(shares, np.bincount(train.labels) / len(train))
    assert data.learned_task(dataset, train, Config()) == Task()
    with pytest.raises(ValueError, match=r"none, or no others, for .'9'.. Set balance to none"):
        data.learned_task(dataset, train.part(np.flatnonzero(train.labels < 9)), config)
