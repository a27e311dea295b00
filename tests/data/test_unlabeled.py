"""A folder without classes is data for runs that read no labels."""

import numpy as np
import pytest
from PIL import Image

from vit_keras import data
from vit_keras.config import DataConfig

pytestmark = pytest.mark.once


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


def test_folders_of_splits_stay_splits(tmp_path):
    draw(tmp_path / "train", range(5))
    draw(tmp_path / "test", range(5, 8))
    dataset = data.load(f"folder:{tmp_path}", 1, labeled=False)
    assert values(dataset.split("train")) == [0, 1, 2, 3, 4]
    assert values(dataset.split("test")) == [5, 6, 7]


def test_folders_of_classes_keep_their_labels(tmp_path):
    draw(tmp_path / "cat", range(5))
    draw(tmp_path / "dog", range(5, 8))
    dataset = data.load(f"folder:{tmp_path}", 1, labeled=False)
    assert dataset.class_names == ("cat", "dog") and dataset.kind == "classes"
