"""Compares the pictures and labels of examples that make data with their geometry."""

import numpy as np
import pytest
from sklearn.datasets import load_sample_images

from examples import shapes_on_photographs as shapes

pytestmark = pytest.mark.once


def test_a_picture_of_shapes_follows_from_its_seed_and_number(tmp_path, capsys):
    files = []
    for name, count, seed in (("one", 4, 0), ("more", 6, 0), ("other", 4, 1)):
        options = ["--classes", "circle", "star", "--count", count, "--test_count", 2]
        shapes.main([str(word) for word in (tmp_path / name, *options, "--seed", seed)])
        pictures = (tmp_path / name).rglob("*.jpg")
        files.append({str(p.relative_to(tmp_path / name)): p.read_bytes() for p in pictures})
    one, more, other = files
    assert sorted(one) == [
        *("test/circle/00000.jpg", "test/star/00001.jpg"),
        *("train/circle/00000.jpg", "train/circle/00002.jpg"),
        *("train/star/00001.jpg", "train/star/00003.jpg"),
    ]
    assert one.items() <= more.items() and len(more) == 8
    assert not set(one.values()) & set(other.values())
    with pytest.raises(SystemExit):
        shapes.main([str(tmp_path)])
    assert "must be new, so that nothing is lost" in capsys.readouterr().err
    splits = shapes.halves("train"), shapes.halves("test")  # no background is in both
    for *halves, whole in zip(*splits, load_sample_images().images):
        np.testing.assert_array_equal(np.hstack(halves), whole)
