"""Compares the shapes of examples/shapes_on_photographs.py with their geometry."""

import numpy as np
import pytest
from sklearn.datasets import load_sample_images

from examples import shapes_on_photographs as shapes

pytestmark = pytest.mark.once
CENTER, RADIUS = (70.0, 50.0), 30.0
X, Y = np.meshgrid(np.arange(160) + 0.5, np.arange(120) + 0.5)
DISTANCE = np.hypot(X - CENTER[0], Y - CENTER[1])


def mask(name, *rest):
    return np.asarray(shapes.draw_mask(shapes.OUTLINES[name], CENTER, RADIUS, *rest)) / 255


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_filled_circle_covers_its_disk():
    circle = mask("circle")
    assert (circle[DISTANCE < RADIUS - 1] == 1).all()
    assert (circle[DISTANCE > RADIUS + 1] == 0).all()
    assert circle.sum() == pytest.approx(np.pi * RADIUS**2, rel=0.01)


def test_a_line_runs_along_the_outline():
    line = mask("circle", 0.0, 6.0)
    assert (line[abs(DISTANCE - RADIUS) < 2] == 1).all()
    assert (line[abs(DISTANCE - RADIUS) > 4] == 0).all()
    assert line.sum() == pytest.approx(2 * np.pi * RADIUS * 6, rel=0.05)


def test_a_shape_turns_clockwise_about_its_center():
    """The square stands on a corner; turned by 45 degrees, its sides are upright."""
    square, half = mask("square", 45.0), RADIUS / np.sqrt(2)
    distance = np.maximum(abs(X - CENTER[0]), abs(Y - CENTER[1]))
    assert (square[distance < half - 1] == 1).all() and (square[distance > half + 1] == 0).all()
    arrow = mask("arrow", 90.0)  # its head now points to the right
    assert arrow[:, 70:].sum(0).max() > 1.5 * arrow[:, :70].sum(0).max()


def test_outlines_differ_and_fit_into_their_circle():
    masks = {name: mask(name) for name in shapes.OUTLINES}
    for name, covered in masks.items():
        assert np.linalg.norm(shapes.OUTLINES[name], axis=1).max() < 1.2, name
        assert covered.sum() > 0.1 * np.pi * RADIUS**2, name
        others = [abs(covered - other).sum() for key, other in masks.items() if key != name]
        assert min(others) > 0.1 * covered.sum(), name


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
