"""Folders of images: their contents, held-out images, and errors."""

import os
import shutil
import warnings

import numpy as np
import pytest
from PIL import Image

from tests.data.gray_pictures import grays, write
from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data import sources

pytestmark = pytest.mark.once

COUNTS = {"ant": 20, "bee": 10, "cat": 5}


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


@pytest.mark.parametrize("train", ["train", "Train", ""])
@pytest.mark.parametrize("held_out", ["test", "validation", "val", "valid", "dev", "Test"])
def test_a_folder_may_have_splits_of_its_own(tmp_path, train, held_out):
    for split, values in ((train, (10, 11, 20)), (held_out, (12, 21))):
        for value in values:
            write(tmp_path / split / f"k{value // 10}" / f"{value}.png", value)
    dataset = data.load(f"folder:{tmp_path}", 1)
    assert dataset.class_names == ("k1", "k2") and not dataset.held_out_by
    assert sorted(grays(dataset.split("train"))) == [10, 11, 20]
    test = dataset.split("test")  # whatever its name is
    assert sorted(grays(test)) == [12, 21] and sorted(test.labels) == [0, 1]
    assert grays(dataset.split(f"{held_out.lower()}[:1]")) == grays(test)[:1]


def test_the_names_of_splits_may_be_names_of_classes(tmp_path):
    for name in ("valid", "invalid", "test"):
        write(tmp_path / name / "1.png", 1)
    assert data.load(f"folder:{tmp_path}", 1).class_names == ("invalid", "test", "valid")


def test_held_out_folders_alone_need_training_images(tmp_path):
    for name in ("test/a", "test/b", "val/a", "val/b"):
        write(tmp_path / name / "1.png", 1)
    with pytest.raises(ValueError, match="with test and val needs a folder train beside"):
        data.load(f"folder:{tmp_path}", 1)
    dataset = data.load(f"folder:{tmp_path}", 1, DataConfig(train_split="val"))
    assert dataset.class_names == ("a", "b") and len(dataset.split("val")) == 2


@pytest.fixture
def train_alone(tmp_path):
    """Ten pictures of each of two classes in a folder train; returns a loader."""
    for value in (*range(10), *range(100, 110)):
        write(tmp_path / "train" / ("a" if value < 50 else "b") / f"{value}.png", value)
    return lambda **fields: data.load(f"folder:{tmp_path}", 1, DataConfig(**fields))


def test_a_training_folder_alone_holds_out_a_share(train_alone):
    dataset = train_alone(test_percent=30)
    train, test = data.train_and_test(dataset, DataConfig(test_percent=30))
    assert sorted(grays(train) + grays(test)) == [*range(10), *range(100, 110)]
    np.testing.assert_array_equal(np.bincount(test.labels), [3, 3])
    line, note = data.describe_splits(dataset, train, test)
    assert line.endswith(": 14 pictures of 2 classes, and 6 (30.0%) held out; each class has 7")
    assert note == (
        "no folder test: 30 % of each class, 6 pictures, are held out. "
        "Give data.test_percent, or a folder test"
    )


def test_slices_of_a_training_folder_are_of_all_of_it(train_alone):
    """As in runs that held out a slice before a share was held out by itself."""
    config = {"train_split": "train[:50%]", "test_split": "train[50%:]"}
    dataset = train_alone(**config)
    assert list(dataset.splits) == ["train"] and not dataset.held_out_by
    train, test = data.train_and_test(dataset, DataConfig(**config))
    assert len(train) == len(test) == 10
    assert sorted(grays(train) + grays(test)) == [*range(10), *range(100, 110)]


def test_faults_of_a_folder_are_named(plain, tmp_path):
    def refused(message, root=tmp_path, error=ValueError):
        with pytest.raises(error, match=message):
            data.load(f"folder:{root}", 3)

    refused("needs a folder. Received: '.*nowhere'", tmp_path / "nowhere", FileNotFoundError)
    refused("must hold CLASS/x with a suffix of .jpg.*none")
    write(tmp_path / "1.png", 1)
    refused("must hold CLASS/x .* which has pictures in no folder of a class .1.")
    (tmp_path / "1.png").unlink()
    write(tmp_path / "ant" / "1.png", 1)
    refused(r"at least two classes. Received: dataset=.* with \['ant'\]")
    (tmp_path / "bee").mkdir()
    refused(r"Every class needs images .*none in '.*': \['bee'\]")
    (tmp_path / "bee").rmdir()
    for name in ("train/ant", "train/bee", "test/ant", "test/wasp"):
        write(tmp_path / "own" / name / "1.png", 1)
    refused(r"Every class of 'test' must be one of 'train'. Received: \['wasp'\]", tmp_path / "own")
    with pytest.raises(ValueError, match="`data.test_percent` must be at least 0 and below 100"):
        DataConfig(test_percent=100)


def test_times_stand_for_contents_where_there_is_much_to_read(plain, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MOST_READ_BYTES", 100)
    root, run = tmp_path / "images", tmp_path / "run"
    shutil.copytree(plain, root)
    run.mkdir()
    load = lambda: data.load(f"folder:{root}", 3, DataConfig(test_percent=0))
    data.check_unchanged(load(), run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.check_unchanged(load(), run)
        os.utime(root / "bee" / "1.png", ns=(5, 5))
        with pytest.raises(UserWarning, match=r"other times than .* \(train\).*make sure"):
            data.check_unchanged(load(), run)


def test_changed_data_are_refused(plain, tmp_path):
    root, run = tmp_path / "images", tmp_path / "run"
    shutil.copytree(plain, root)
    run.mkdir()
    load = lambda: data.load(f"folder:{root}", 3, DataConfig(test_percent=0))
    data.check_unchanged(load(), run)
    assert sources.fingerprint(load())["images"]["train"] == COUNTS
    data.check_unchanged(load(), run)  # a run may go on

    def refused(message):
        with pytest.raises(ValueError, match=message):
            data.check_unchanged(load(), run)

    Image.new("RGB", (30, 40), "red").save(root / "bee" / "1.png")
    refused("has changed since.*train: as many images, but other names, sizes or contents")
    shutil.copytree(plain, root, dirs_exist_ok=True)
    data.check_unchanged(load(), run)  # the same bytes at other times
    flipped = bytearray((root / "bee" / "1.png").read_bytes())
    flipped[-20] ^= 1
    (root / "bee" / "1.png").write_bytes(flipped)
    refused(r"has changed since.*train: as many images, but other names, sizes or contents")
    (root / "bee" / "1.png").unlink()
    refused("train/bee: 10 images then, 9 now.*begin another run with another --workdir")
    (root / "cat").rename(root / "dog")
    refused("classes added: 'dog'; classes removed: 'cat'.*train/cat: 5 images then, 0 now")


def test_junk_links_upward_and_empty_held_out_classes_do_no_harm(tmp_path):
    """As archives of macOS, Synology's disks and notebooks leave them behind."""
    for value, name in enumerate(("Training/a", "Training/b", "Testing/a")):
        for i in range(3):
            write(tmp_path / name / f"{i}.png", 10 * value + i)
        for junk in ("__MACOSX", "@eaDir", ".ipynb_checkpoints"):
            write(tmp_path / name / junk / "0.png", 99)
        write(tmp_path / name / "._0.png", 99)
    for junk in ("__MACOSX/Training", "Training/.ipynb_checkpoints", "Training/@eaDir"):
        write(tmp_path / junk / "x.png", 99)
    (tmp_path / "Testing" / "b").mkdir()
    (tmp_path / "Training" / "a" / "up").symlink_to(tmp_path, target_is_directory=True)
    dataset = data.load(f"folder:{tmp_path}", 1)
    assert dataset.class_names == ("a", "b") and [*dataset.splits] == ["train", "test"]
    assert sorted(grays(dataset.split("train"))) == [0, 1, 2, 10, 11, 12]
    assert sorted(grays(dataset.split("test"))) == [20, 21, 22]


def test_classes_may_be_in_the_names_of_files(tmp_path):
    for value, name in enumerate(("cat_1", "cat_2", "great_dane_1", "great_dane_2")):
        write(tmp_path / "deep" / f"{name}.png", value)
    config = DataConfig(label_pattern=r"^(.+)_\d+\.", test_percent=0)
    dataset = data.load(f"folder:{tmp_path}", 1, config)
    train = dataset.split("train")
    assert dataset.class_names == ("cat", "great_dane")
    assert {g: int(k) for g, k in zip(grays(train), train.labels)} == {0: 0, 1: 0, 2: 1, 3: 1}


def draw(folder, values):
    folder.mkdir(parents=True, exist_ok=True)
    for value in values:
        Image.new("L", (4, 4), value).save(folder / f"{value}.png")


def values(split):
    return sorted(int(split.read(i)[0, 0, 0]) for i in range(len(split)))


def test_pictures_at_any_depth_are_one_data_set(tmp_path):
    draw(tmp_path, range(10))
    draw(tmp_path / "2024" / "may", range(10, 20))
    dataset = data.load(f"folder:{tmp_path}", 1, DataConfig(test_percent=20), labeled=False)
    train, test = dataset.split("train"), dataset.split("test")
    assert dataset.class_names == () and (len(train), len(test)) == (16, 4)
    assert sorted(values(train) + values(test)) == list(range(20))
    assert "no folder test: 20 % of the pictures, 4 pictures, are held out" in dataset.held_out_by
    again = data.load(f"folder:{tmp_path}", 1, DataConfig(test_percent=20), labeled=False)
    assert values(again.split("test")) == values(test)
    assert not np.array_equal(sorted(map(train.name, range(16))), list(map(train.name, range(16))))
    lines = data.describe_splits(dataset, train, test)
    assert "16 pictures without labels, and 4 (20.0%) held out" in lines[0]
    with pytest.raises(ValueError, match="at least two classes"):
        data.load(f"folder:{tmp_path}", 1)


def test_folders_of_classes_keep_their_labels(tmp_path):
    draw(tmp_path / "cat", range(5))
    draw(tmp_path / "dog", range(5, 8))
    dataset = data.load(f"folder:{tmp_path}", 1, labeled=False)
    assert dataset.class_names == ("cat", "dog") and dataset.kind == "classes"
