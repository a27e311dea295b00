"""Folders and tables of images: their contents, held-out images, and errors."""

import shutil

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
import tensorflow as tf
from PIL import Image

from vit_keras import data
from vit_keras.config import DataConfig

pytestmark = pytest.mark.once

COUNTS = {"ant": 20, "bee": 10, "cat": 5}


def write(path, value):
    """Writes a picture of one gray level, which identifies it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (6, 4), value).save(path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A folder of classes; the gray level of each image is 40 * class + number.

    The first image of each class lies in a subfolder.
    """
    root = tmp_path_factory.mktemp("plain")
    for k, (name, count) in enumerate(COUNTS.items()):
        for i in range(count):
            write(root / name / ("deeper/0.PNG" if i == 0 else f"{i}.png"), 40 * k + i)
    (root / "ant" / "notes.txt").write_text("no image")
    (root / ".cache").mkdir()
    return root


def grays(split):
    return [int(split.read(tf.constant(i)).numpy()[0, 0, 0]) for i in range(len(split))]


def test_a_folder_of_classes_is_split_by_class(plain):
    dataset = data.load(f"folder:{plain}", 1, DataConfig(test_percent=20))
    assert dataset.class_names == ("ant", "bee", "cat")
    train, test = dataset.split("train"), dataset.split("test")
    np.testing.assert_array_equal(np.bincount(test.labels), [4, 2, 1])
    np.testing.assert_array_equal(np.bincount(train.labels), [16, 8, 4])
    expected = [40 * k + i for k, count in enumerate(COUNTS.values()) for i in range(count)]
    assert sorted(grays(train) + grays(test)) == sorted(expected)
    np.testing.assert_array_equal(np.array(grays(train)) // 40, train.labels)
    again = data.load(f"folder:{plain}", 1, DataConfig(test_percent=20))
    assert grays(again.split("test")) == grays(test)
    other = data.load(f"folder:{plain}", 1, DataConfig(test_percent=20, split_seed=1))
    assert sorted(grays(other.split("test"))) != sorted(grays(test))
    whole = data.load(f"folder:{plain}", 1, DataConfig(test_percent=0))
    assert list(whole.splits) == ["train"] and len(whole.split("train")) == 35


def test_slices_of_a_folder_are_samples(plain):
    dataset = data.load(f"folder:{plain}", 1)
    train = dataset.split("train")
    assert len(set(train.labels[:10])) > 1  # classes are mixed
    whole = grays(train)
    n = len(whole)
    for name, expected in {
        "train[:90%]": whole[: round(0.9 * n)],
        "train[90%:]": whole[round(0.9 * n) :],
        "train[5:20]": whole[5:20],
        "train[-3:]": whole[-3:],
        "train[:]": whole,
    }.items():
        part = dataset.split(name)
        assert grays(part) == expected
        np.testing.assert_array_equal(part.labels, np.array(expected) // 40)
    inner = dataset.split("train[5:20]").part(np.array([3, 1]))
    assert grays(inner) == [whole[8], whole[6]]
    for name, message in {
        "train[5:5]": "must hold images.*train.5:5.",
        "train[1:2:3]": "or a slice such as",
        "val": "must be one of 'train', 'test', or a slice",
    }.items():
        with pytest.raises(ValueError, match=message):
            dataset.split(name)


@pytest.mark.parametrize("held_out", ["test", "validation", "val", "valid"])
def test_a_folder_may_have_splits_of_its_own(tmp_path, held_out):
    for split, values in (("train", (10, 11, 20)), (held_out, (12, 21))):
        for value in values:
            write(tmp_path / split / f"k{value // 10}" / f"{value}.png", value)
    dataset = data.load(f"folder:{tmp_path}", 1)
    assert sorted(grays(dataset.split("train"))) == [10, 11, 20]
    test = dataset.split("test")  # whatever its name is
    assert sorted(grays(test)) == [12, 21] and sorted(test.labels) == [0, 1]
    assert grays(dataset.split(f"{held_out}[:1]")) == grays(test)[:1]


def test_a_training_folder_alone_names_the_remedy(tmp_path):
    for value in (10, 11, 12, 20, 21, 22):
        write(tmp_path / "train" / f"k{value // 10}" / f"{value}.png", value)
    dataset = data.load(f"folder:{tmp_path}", 1)
    remedy = "add a split called test or validation or val or valid, or .*--data.train_split 'tr"
    for name in ("test", "val", "valid[:5]"):
        with pytest.raises(ValueError, match=rf"must be one of 'train', or a slice .*{remedy}"):
            dataset.split(name)
    with pytest.raises(ValueError, match=r"Received: split='other'$"):
        dataset.split("other")
    config = DataConfig(train_split="train[:50%]", test_split="train[50%:]")
    train, test = data.train_and_test(dataset, config)
    assert sorted(grays(train) + grays(test)) == [10, 11, 12, 20, 21, 22]


def test_faults_of_a_folder_are_named(plain, tmp_path):
    def refused(message, root=tmp_path):
        with pytest.raises(ValueError, match=message):
            data.load(f"folder:{root}", 3)

    refused("needs a folder. Received: '.*nowhere'", root=tmp_path / "nowhere")
    refused("must hold CLASS/x with a suffix of .jpg.*none")
    write(tmp_path / "ant" / "1.png", 1)
    refused(r"at least two classes. Received: dataset=.* with \['ant'\]")
    (tmp_path / "bee").mkdir()
    refused(r"Every class needs images .*none in '.*': \['bee'\]")
    (tmp_path / "bee").rmdir()
    for name in ("train/ant", "train/bee", "test/ant", "test/wasp"):
        write(tmp_path / "own" / name / "1.png", 1)
    refused(r"Every class of 'test' must be one of 'train'. Received: \['wasp'\]", tmp_path / "own")
    with pytest.raises(ValueError, match="must be 1 .* or 3 .*Received: channels=4"):
        data.load(f"folder:{plain}", 4)
    with pytest.raises(ValueError, match=r"`test_percent` must lie in \[0, 100\). Received: 100"):
        DataConfig(test_percent=100)


def stored(path, columns):
    table = pyarrow.table(columns)
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    return f"table:{path}"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_names_files_labels_and_splits(tmp_path, suffix):
    values = [30, 5, 100, 31, 6]
    for value in values:
        write(tmp_path / "pictures" / f"{value}.png", value)
    columns = {
        "path": [f"pictures/{v}.png" for v in values[:-1]] + [str(tmp_path / "pictures/6.png")],
        "label": [10, 9, 100, 10, 9],
        "split": ["train", "train", "train", "validation", "validation"],
    }
    dataset = data.load(stored(tmp_path / f"rows{suffix}", columns), 1)
    assert dataset.class_names == ("9", "10", "100")  # as numbers, not as text
    assert grays(dataset.split("train")) == [30, 5, 100]  # rows keep their order
    np.testing.assert_array_equal(dataset.split("train").labels, [1, 0, 2])
    assert grays(dataset.split("test")) == [31, 6]
    del columns["split"]
    columns["label"] = ["x", "b", "b", "x", "b"]
    dataset = data.load(stored(tmp_path / f"more{suffix}", columns), 1, DataConfig(test_percent=40))
    assert dataset.class_names == ("b", "x")
    np.testing.assert_array_equal(np.bincount(dataset.split("test").labels), [1, 1])


def test_faults_of_a_table_are_named(tmp_path):
    for value in (1, 2):
        write(tmp_path / f"{value}.png", value)
    there = ["1.png", "2.png"]

    def refused(message, columns, name="rows.csv", error=ValueError):
        with pytest.raises(error, match=message):
            data.load(stored(tmp_path / name, columns) if columns else f"table:{name}", 3)

    gone = [f"gone{i}.png" for i in range(7)]
    first = r"\['gone0.png', 'gone1.png', 'gone2.png', 'gone3.png', 'gone4.png'\]"
    labels = [0, 1] * 4
    refused(
        f"names 7 that do not, such as {first}. Paths are relative to",
        {"path": [*gone, there[0]], "label": labels},
    )
    refused(r"needs the columns path and label. Received: \['path', 'class'\], without label",
            {"path": there, "class": [0, 1]})  # fmt: skip
    refused("needs a label. Received: 1 without one, such as row 1",
            {"path": there, "label": [0, None]})  # fmt: skip
    refused(r"needs rows of the split train. Received: \['test'\]",
            {"path": there, "label": [0, 1], "split": ["test", "test"]})  # fmt: skip
    refused(r"must have training images. Received: .*which has \['b'\]",
            {"path": there, "label": ["a", "b"], "split": ["train", "test"]})  # fmt: skip
    refused("at least two classes", {"path": there, "label": ["a", "a"]})
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 is not enough")
    refused("bad.parquet' cannot be read as a .parquet table", None, tmp_path / "bad.parquet")
    refused("no table at 'nowhere.csv'", None, "nowhere.csv", FileNotFoundError)
    refused("needs a .csv or .parquet file. Received: 'rows.txt'", None, "rows.txt")


@pytest.mark.parametrize("name", ["mnist", "folder:", "web:pictures"])
def test_unknown_kinds_of_data_sets_are_refused(name):
    with pytest.raises(ValueError, match="must be one of 'digits', or folder:PATH.*Received"):
        data.load(name, 1)


def test_changed_data_are_refused(plain, tmp_path):
    root, run = tmp_path / "images", tmp_path / "run"
    shutil.copytree(plain, root)
    run.mkdir()
    load = lambda: data.load(f"folder:{root}", 3, DataConfig(test_percent=0))
    data.check_unchanged(load(), run)
    assert load().fingerprint["images"]["train"] == COUNTS
    data.check_unchanged(load(), run)  # a run may go on

    def refused(message):
        with pytest.raises(ValueError, match=message):
            data.check_unchanged(load(), run)

    Image.new("RGB", (30, 40), "red").save(root / "bee" / "1.png")
    refused("has changed since.*train: as many images, but other names or sizes")
    (root / "bee" / "1.png").unlink()
    refused("train/bee: 10 images then, 9 now.*begin another run with another --workdir")
    (root / "cat").rename(root / "dog")
    refused("classes added: 'dog'; classes removed: 'cat'.*train/cat: 5 images then, 0 now")
