"""Compares the shapes of examples/shapes_on_photographs.py with their geometry."""

import numpy as np
import pytest
from sklearn.datasets import load_sample_images

from examples import shapes_on_photographs as shapes

pytestmark = pytest.mark.once


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_no_background_is_in_both_splits():
    for left, right, whole in zip(
        shapes.halves("train"), shapes.halves("test"), load_sample_images().images
    ):
        np.testing.assert_array_equal(np.hstack([left, right]), whole)


def test_a_picture_follows_from_its_seed_and_number(tmp_path):
    classes = ("--classes", "circle", "star")
    for name, count, seed in (("one", 4, 0), ("more", 6, 0), ("other", 4, 1)):
        options = ["--count", count, "--test_count", 2, "--seed", seed]
        shapes.main([str(word) for word in (tmp_path / name, *classes, *options)])
    one, more, other = (files(tmp_path / name) for name in ("one", "more", "other"))
    assert sorted(map(str, one)) == [
        *("test/circle/00000.jpg", "test/star/00001.jpg"),
        *("train/circle/00000.jpg", "train/circle/00002.jpg"),
        *("train/star/00001.jpg", "train/star/00003.jpg"),
    ]
    assert one.items() <= more.items() and len(more) == 8
    assert not set(one.values()) & set(other.values())


def test_a_folder_that_exists_is_left_as_it_is(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(SystemExit):
        shapes.main([str(tmp_path)])
    assert "must be new, so that nothing is lost" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
