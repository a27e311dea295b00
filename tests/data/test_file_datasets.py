"""Folders of images: their contents, held-out images, and errors."""

import re
import shutil

import numpy as np
import pytest

from tests.data.gray_shards import grays, write
from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data import sources

pytestmark = pytest.mark.once

COUNTS = {"ant": 20, "bee": 10, "cat": 5}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A folder of classes, where gray is 40 * class + number; each first image lies deeper."""
    root = tmp_path_factory.mktemp("plain")
    for k, (name, count) in enumerate(COUNTS.items()):
        for i in range(count):
            write(root / name / ("deeper/0.PNG" if i == 0 else f"{i}.png"), 40 * k + i)
    (root / "ant" / "notes.txt").write_text("no image")
    (root / ".cache").mkdir()
    return root


def test_a_folder_of_classes_is_split_by_class(plain):
    load = lambda **fields: data.load(f"folder:{plain}", 1, DataConfig(**fields))
    dataset = load(test_percent=20)
    assert dataset.class_names == ("ant", "bee", "cat")
    train, test = dataset.split("train"), dataset.split("test")
    np.testing.assert_array_equal(np.bincount(test.labels), [4, 2, 1])
    expected = {40 * k + i for k, count in enumerate(COUNTS.values()) for i in range(count)}
    assert {*grays(train), *grays(test)} == expected and len(train) + len(test) == 35
    np.testing.assert_array_equal(np.array(grays(train)) // 40, train.labels)
    assert grays(load(test_percent=20).split("test")) == grays(test)
    assert {*grays(load(test_percent=20, split_seed=1).split("test"))} != {*grays(test)}
    assert {name: len(of) for name, of in load(test_percent=0).splits.items()} == {"train": 35}


def test_slices_of_a_folder_are_samples(plain):
    dataset = data.load(f"folder:{plain}", 1)
    whole = grays(dataset.split("train"))
    assert len({gray // 40 for gray in whole[:10]}) > 1  # classes are mixed
    most = round(0.9 * len(whole))
    slices = {":90%": whole[:most], "90%:": whole[most:], "5:20": whole[5:20], "-3:": whole[-3:]}
    for name, expected in {**slices, ":": whole}.items():
        part = dataset.split(f"train[{name}]")
        assert grays(part) == expected
        np.testing.assert_array_equal(part.labels, np.array(expected) // 40)
    inner = dataset.split("train[5:20]").part(np.array([3, 1]))
    assert grays(inner) == [whole[8], whole[6]]
    for name in ("train[5:5]", "train[1:2:3]", "train[:0.9]", "val"):
        message = "must be one of 'train', 'test', or a slice with images"
        with pytest.raises(ValueError, match=f"{message}.*{re.escape(name)}"):
            dataset.split(name)


@pytest.mark.parametrize(
    ("train", "held_out"),
    [("Training", "Testing"), ("Train", "validation"), ("", "val"), ("train", "dev"), ("", "Test")],
)
def test_a_folder_may_have_splits_of_its_own(tmp_path, train, held_out):
    for split, values in ((train, (10, 11, 20)), (held_out, (12, 21))):
        for value in values:
            write(tmp_path / split / f"k{value // 10}" / f"{value}.png", value)
    write(tmp_path / "__MACOSX" / train / "k1" / "1.png", 99)  # junk
    dataset = data.load(f"folder:{tmp_path}", 1)
    assert dataset.class_names == ("k1", "k2") and not dataset.notes
    assert sorted(grays(dataset.split("train"))) == [10, 11, 20]
    test = dataset.split("test")  # whatever its name is
    assert sorted(grays(test)) == [12, 21] and sorted(test.labels) == [0, 1]
    assert grays(dataset.split(f"{[*dataset.splits][1]}[:1]")) == grays(test)[:1]


def test_held_out_folders_alone_need_training_images(tmp_path):
    for name in ("test/a", "test/b", "val/a", "val/b"):
        write(tmp_path / name / "1.png", 1)
    with pytest.raises(ValueError, match=r"images to train on.* none in \['a', 'b'\], and 0"):
        data.load(f"folder:{tmp_path}", 1)
    dataset = data.load(f"folder:{tmp_path}", 1, DataConfig(train_split="val"))
    assert dataset.class_names == ("a", "b") and len(dataset.split("val")) == 2
    for name in ("valid", "invalid", "test"):  # which may be classes too
        write(tmp_path / "val" / name / "1.png", 1)
    names = data.load(f"folder:{tmp_path / 'val'}", 1).class_names
    assert names == ("a", "b", "invalid", "test", "valid")


def test_a_training_folder_alone_holds_out_a_share(tmp_path):
    for value in range(20):
        write(tmp_path / "train" / "ab"[value // 10] / f"{value}.png", value)

    def parts(**fields):
        config = DataConfig(**fields)
        dataset = data.load(f"folder:{tmp_path}", 1, config)
        train, _, test = data.train_dev_test(dataset, config)
        assert sorted(grays(train) + grays(test)) == [*range(20)]
        return dataset, train, test

    dataset, train, test = parts(test_percent=30)
    np.testing.assert_array_equal(np.bincount(test.labels), [3, 3])
    line, note = data.describe_splits(dataset, train, test)
    assert line.endswith(": 14 pictures of 2 classes, and 6 (30.0%) held out; each class has 7")
    assert note == (
        "no held-out split: 30% of each class, 6 pictures, are held out. "
        "data.test_percent sets the share"
    )
    dataset, train, test = parts(train_split="train[:50%]", test_split="train[50%:]")
    assert list(dataset.splits) == ["train"] and not dataset.notes and len(test) == 10


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (".cache/", r"own/CLASS/x.png .\.jpg.* none in any folder, and 0 outside"),
        ("ant/1.png", r"data set of classes needs 2 or more names. Received: .* with \['ant'\]"),
        ("ant/1.png bee/", r"Every class needs a folder .*own' with none in \['bee'\]"),
        ("train/ant/1.png train/bee/1.png test/wasp/1.png", r"/train' with none in \['wasp'\]"),
    ],
)
def test_faults_of_a_folder_are_named(tmp_path, names, message):
    for name in names.split():
        if name.endswith("/"):
            (tmp_path / "own" / name).mkdir(parents=True)
        else:
            write(tmp_path / "own" / name, 1)
    with pytest.raises(ValueError, match=message):
        data.load(f"folder:{tmp_path / 'own'}", 3)


@pytest.fixture
def copied(plain, tmp_path):
    """A copy of the folder, and a function that compares it with what it was at first."""
    root = tmp_path / "images"
    shutil.copytree(plain, root)
    load = lambda: data.load(f"folder:{root}", 3, DataConfig(test_percent=0))
    return root, lambda: data.check_unchanged(load(), tmp_path)


def test_sizes_stand_for_contents_where_there_is_much_to_read(copied, monkeypatch):
    monkeypatch.setattr(sources, "MOST_READ_BYTES", 100)
    root, check = copied
    picture = root / "bee" / "1.png"
    for _ in range(2):
        check()
        picture.write_bytes(picture.read_bytes()[:-20] + b"?" * 20)
    picture.write_bytes(picture.read_bytes()[1:])
    with pytest.raises(ValueError, match="train: different labels, or different names, sizes"):
        check()


def test_changed_data_are_refused(copied):
    root, check = copied
    picture = root / "bee" / "1.png"
    for _ in range(2):  # a run may go on
        check()
        picture.write_bytes(picture.read_bytes())  # the same bytes at another time
    spoil = lambda: picture.write_bytes(picture.read_bytes()[:-20] + b"?" * 20)
    rename = lambda: (root / "cat").rename(root / "dog")
    for change, message in (
        (spoil, "train: different labels, or different names, sizes or contents"),
        (picture.unlink, "train/bee: 10 there, 9 here; train: different.*begin another run"),
        (rename, "train/cat: 5 there, None here; train/dog: None there, 5 here"),
    ):
        change()
        with pytest.raises(ValueError, match=f"has changed since.*{message}"):
            check()


def test_pictures_at_any_depth_are_one_data_set(tmp_path):
    for value in range(20):
        write(tmp_path / ("2024/may" if value < 10 else "") / f"{value}.png", value)
    dataset = data.load(f"folder:{tmp_path}", 1, DataConfig(test_percent=20), labeled=False)
    train, test = dataset.split("train"), dataset.split("test")
    assert dataset.class_names == () and (len(train), len(test)) == (16, 4)
    assert {*grays(train), *grays(test)} == {*range(20)} and grays(train) != sorted(grays(train))
    assert "no held-out split: 20% of the pictures, 4 pictures, are held out" in dataset.notes[0]
    lines = data.describe_splits(dataset, train, test)
    assert "16 pictures without labels, and 4 (20.0%) held out" in lines[0]
    config = DataConfig(label_pattern=r"^\d*(\d)\.", test_percent=0)
    by_digit = data.load(f"folder:{tmp_path}", 1, config).split("train")
    assert [gray % 10 for gray in grays(by_digit)] == by_digit.labels.tolist()
    write(tmp_path / "val" / "2024" / "99.png", 99)
    for fields in ({"labeled": False}, {"config": config}):  # a picture is in one split
        dataset = data.load(f"folder:{tmp_path}", 1, **fields)
        assert {*grays(dataset.split("train"))} == {*range(20)}
        assert grays(dataset.split("test")) == [99]
