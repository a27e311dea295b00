"""Hugging Face's data sets: what the library `datasets` opens, compared with folders and shards."""

import numpy as np
import pytest

from tests.data.gray_shards import grays, png
from vit_keras import data
from vit_keras.config import DataConfig

pytestmark = pytest.mark.once

CLASSES = ["ant", "bee", "cat"]


@pytest.fixture(autouse=True)
def library(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    return datasets


def load(name, needs_labels=True, **fields):
    return data.load(f"hf:{name}", 1, DataConfig(**fields), labeled=needs_labels)


def made(library, values, kind, labels):
    """A data set of pictures of these gray levels, and a column of labels."""
    pictures = [{"bytes": png(value), "path": None} for value in values]
    features = library.Features({"image": library.Image(), "label": kind})
    return library.Dataset.from_dict({"image": pictures, "label": labels}, features=features)


def labeled(library, values):
    return made(library, values, library.ClassLabel(names=CLASSES), [v % 3 for v in values])


def test_parquet_files_of_the_hub_are_read_as_shards_are(library, tmp_path):
    files, splits = tmp_path / "set" / "data", {"train": range(20), "test": range(40, 46)}
    files.mkdir(parents=True)
    for name, values in splits.items():
        labeled(library, values).to_parquet(files / f"{name}-00000.parquet")
    shards, dataset = data.load(f"shards:{files}", 1), load(tmp_path / "set")
    assert dataset.class_names == shards.class_names == tuple(CLASSES)
    assert not any("held out" in note for note in dataset.notes)
    for split, values in splits.items():
        assert grays(dataset.split(split)) == [*values]
        np.testing.assert_array_equal(dataset.split(split).labels, shards.split(split).labels)
    data.check_unchanged(dataset, tmp_path)
    labeled(library, range(1, 21)).to_parquet(files / "train-00000.parquet")
    with pytest.raises(ValueError, match="'hf:.*' has changed since the run"):
        data.check_unchanged(load(tmp_path / "set"), tmp_path)


def test_saved_data_sets_have_held_out_pictures(library, tmp_path):
    texts = [CLASSES[2 - value % 3] for value in range(30)]
    dataset = made(library, range(30), library.Value("string"), texts)
    dataset.rename_column("label", "species").save_to_disk(tmp_path / "set")
    dataset = load(tmp_path / "set", label_columns="species", test_percent=20)
    assert dataset.class_names == tuple(CLASSES)
    assert dataset.notes[0].startswith("no held-out split: 20% of each class, 6 pictures")
    train, test = dataset.split("train"), dataset.split("test")
    assert sorted(grays(train) + grays(test)) == [*range(30)]
    np.testing.assert_array_equal(np.bincount(test.labels), [2, 2, 2])
    for split in (train, test):
        assert [2 - gray % 3 for gray in grays(split)] == split.labels.tolist()
    without = load(tmp_path / "set", needs_labels=False, test_percent=0)
    assert without.class_names == () and grays(without.split("train")) == [*range(30)]


@pytest.mark.parametrize("task, columns", [("numbers", "label"), ("auto", "label,other")])
def test_negative_numbers_are_numbers_as_in_a_table(library, tmp_path, task, columns):
    numbers = [*range(-4, 8)]
    dataset = made(library, range(12), library.Value("int64"), numbers)
    dataset.add_column("other", numbers[::-1]).save_to_disk(tmp_path / "set")
    config = DataConfig(label_columns=columns, group_column="label", test_percent=0)
    split = data.load(f"hf:{tmp_path / 'set'}", 1, config, task).split("train")
    np.testing.assert_array_equal(split.labels[:, 0], numbers)
    assert split.groups == [*map(str, numbers)]


def test_names_of_classes_are_stripped_as_in_a_table(library, tmp_path):
    for names in (["ant ", "be\u0301e"], ["ant", "ant "]):
        kind = library.ClassLabel(names=names)
        made(library, range(4), kind, [0, 1, 1, 0]).save_to_disk(tmp_path / names[0])
    dataset = load(tmp_path / "ant ", test_percent=0)
    assert dataset.class_names == ("ant", "b\u00e9e")
    assert dataset.split("train").labels.tolist() == [0, 1, 1, 0]
    with pytest.raises(ValueError, match=r"need different names. .*\['ant', 'ant'\]"):
        load(tmp_path / "ant")
