"""Compares the pictures and labels of examples that make data with their geometry."""

import csv

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from examples import labels_and_numbers
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


def test_arrows_point_where_their_angle_says(tmp_path):
    """The bright head of an arrow lies on the side that its angle names."""
    labels_and_numbers.main([str(tmp_path / "a"), "--count", "60", "--test_count", "20"])
    with open(tmp_path / "a" / "angles.csv", newline="") as table:
        rows = list(csv.DictReader(table))
    assert [row["split"] for row in rows] == ["train"] * 60 + ["test"] * 20
    x, y = np.meshgrid(np.arange(32), np.arange(32))
    sides = []
    for row in rows:
        bright = np.asarray(Image.open(tmp_path / "a" / row["path"])) >= 200
        angle = np.deg2rad(float(row["angle"]))
        along = (x * np.sin(angle) - y * np.cos(angle))[bright]
        sides.append((along > (along.min() + along.max()) / 2).mean())  # the head is wider
    assert np.mean(sides) > 0.55 and min(sides) > 0.5
