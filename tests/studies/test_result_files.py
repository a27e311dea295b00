"""The files of a result contain its values and open without other files."""

import numpy as np
import pytest
from PIL import Image

from studies.plots import bars, lines, side_by_side
from studies.results import Column, Mean, Result
from vit_keras.support.figures import new_figure, save_figure

pytestmark = pytest.mark.once


def draw(path):
    figure, axes = new_figure(2, 1)
    axes[0, 0].plot([1, 3, 2])
    save_figure(figure, path)


@pytest.fixture
def result():
    columns = Column("source"), Column("a < b"), Column("count", ",d"), Column("accuracy", ".2f")
    rows = [
        ["ours", "1-D & more", 12345, Mean(61.3819, 0.456)],
        ["paper", "none", None, Mean(59.1)],
    ]
    return Result("table8", columns, rows, draw, "ours < paper.", "fewer images.")


def test_a_mean_has_the_standard_deviation_of_a_sample():
    mean = Mean.of([1.0, 2.0, 6.0])
    assert mean == (3.0, pytest.approx(np.std([1, 2, 6], ddof=1)))
    assert f"{mean:.1f}" == "3.0 ± 2.6" and f"{Mean.of([2.0]):.1f}" == "2.0"


def test_pictures_are_drawn_and_joined(tmp_path):
    series = {"ViT": {"a": Mean(1.0, 0.1), "b": None}, "BiT": {"a": 2.0, "b": 3.0}}
    bars({"ours": series, "paper": {"": {"a": 0.5}}}, "accuracy", tmp_path / "bars.png")
    curves = {"ViT-B": {1: 2.0, 10: Mean(3.0, 0.2)}, "ViT-L": {1: None, 10: 4.0}}
    lines({"ours": curves}, ("x", "y"), tmp_path / "lines.png")
    paths = [tmp_path / "bars.png", tmp_path / "lines.png"]
    side_by_side(paths, tmp_path / "both.png")
    sizes = [Image.open(path).size for path in paths]
    both = np.asarray(Image.open(tmp_path / "both.png"))
    assert both.shape == (max(h for _, h in sizes), sum(w for w, _ in sizes), 3)
    offset = (both.shape[0] - sizes[0][1]) // 2
    left = both[offset : offset + sizes[0][1], : sizes[0][0]]
    np.testing.assert_array_equal(left, np.asarray(Image.open(paths[0]).convert("RGB")))
