"""Figures of training and evaluation show what they are given."""

import itertools

import numpy as np
import pytest

from vit_keras.support import figures

pytestmark = pytest.mark.once

DOGS = [f"American Staffordshire terrier {i}" for i in range(8)]
CASES = {
    "long names": DOGS,
    "very long names": [f"{name}, also called by another name" for name in DOGS],
    "short names": [str(i) for i in range(10)],
    "many classes": [f"class number {i}" for i in range(30)],
    "breeds of 60 characters": [f"{i:02}{58 * 'w'}" for i in range(37)],
    "a hundred classes": [f"a class with the number {i}" for i in range(100)],
}


@pytest.fixture
def drawn(monkeypatch):
    """Calls a function that draws and returns its figure, laid out but not written."""
    kept = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: kept.append(figure))

    def draw(function, *arguments):
        function(*arguments, "nowhere")
        kept[-1].draw_without_rendering()
        return kept.pop()

    return draw


@pytest.mark.parametrize("names", CASES.values(), ids=CASES)
def test_class_names_stand_apart_in_a_confusion_matrix(drawn, names):
    figure = drawn(figures.confusion, np.eye(len(names), dtype=int), names)
    axis = figure.axes[0]
    for labels in (axis.get_xticklabels(), axis.get_yticklabels()):
        boxes = [label.get_window_extent() for label in labels]
        assert len(boxes) == len(names)
        for one, other in itertools.pairwise(boxes):
            assert not one.overlaps(other)
        for box in boxes:
            assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
            assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1
    cell = axis.get_window_extent().width / len(names)
    for count in (text.get_window_extent() for text in axis.texts):
        assert count.height < cell and count.width < cell


def test_a_confusion_matrix_counts_true_classes_down_and_predictions_across(drawn):
    figure = drawn(figures.confusion, [[5, 1], [0, 4]], ["cat", "dog"])
    axis = figure.axes[0]
    counts = {text.get_position(): text.get_text() for text in axis.texts}
    assert counts == {(0, 0): "5", (1, 0): "1", (1, 1): "4"}
    assert axis.get_title() == "90.00 % of 10 images"
    assert [label.get_text() for label in axis.get_xticklabels()] == ["cat", "dog"]
