"""The tables and masks that the examples make hold what they say of their pictures."""

import csv

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from examples import labels_and_numbers, shapes_with_masks

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples") / "tables"
    labels_and_numbers.main([str(folder), "--count", "60", "--test_count", "20"])
    return folder


def rows_of(file):
    with open(file, newline="") as table:
        return list(csv.DictReader(table))


def test_labels_are_facts_of_the_digits(tables):
    data, rows = load_digits(), rows_of(tables / "labels.csv")
    assert len(rows) == 1797 and sum(row["split"] == "test" for row in rows) == 360
    for row, image, digit in zip(rows[::50], data.images[::50], data.target[::50]):
        facts = digit in (0, 2, 4, 6, 8), digit in (5, 6, 7, 8, 9), digit in (0, 6, 8, 9)
        assert [row[name] == "1" for name in ("even", "big", "round")] == [*facts]
        pixels = np.asarray(Image.open(tables / row["path"]))
        np.testing.assert_array_equal(pixels, np.round(image * 255 / 16))


def test_arrows_point_where_their_angle_says(tables):
    """The bright head of an arrow lies on the side that its angle names."""
    rows = rows_of(tables / "angles.csv")
    assert [row["split"] for row in rows] == ["train"] * 60 + ["test"] * 20
    x, y = np.meshgrid(np.arange(32), np.arange(32))
    sides = []
    for row in rows:
        bright = np.asarray(Image.open(tables / row["path"])) >= 200
        angle = np.deg2rad(float(row["angle"]))
        assert abs(angle) <= np.pi / 2
        along = (x * np.sin(angle) - y * np.cos(angle))[bright]
        middle = (along.min() + along.max()) / 2
        sides.append((along > middle).mean())  # the head is wider than the shaft
    assert np.mean(sides) > 0.55 and min(sides) > 0.5


def test_masks_name_the_shapes_of_their_pictures(tmp_path):
    for name in ("one", "two"):
        shapes_with_masks.main([str(tmp_path / name), "--count", "12", "--test_count", "4"])
    files = sorted(p.relative_to(tmp_path / "one") for p in (tmp_path / "one").rglob("*.*"))
    assert len(files) == 2 * 16 + 1
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    assert (tmp_path / "one" / "classes.txt").read_text() == "background\ncircle\ncross\n"
    inside, outside, seen = [], [], set()
    for file in (tmp_path / "one" / "train" / "masks").iterdir():
        mask = np.asarray(Image.open(file))
        picture = Image.open(tmp_path / "one" / "train" / "images" / f"{file.stem}.jpg")
        assert mask.shape == picture.size[::-1]
        brightest = np.asarray(picture).max(axis=-1)
        inside.append(brightest[mask > 0].mean())
        outside.append(brightest[mask == 0].mean())
        seen |= set(np.unique(mask))
    assert seen == {0, 1, 2} and np.subtract(inside, outside).min() > 30
