"""Figures of training and evaluation show what they are given."""

import pytest

from vit_keras.support import figures

pytestmark = pytest.mark.once


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


def test_a_confusion_matrix_counts_true_classes_down_and_predictions_across(drawn):
    figure = drawn(figures.confusion, [[5, 1], [0, 4]], ["cat", "dog"])
    axis = figure.axes[0]
    counts = {text.get_position(): text.get_text() for text in axis.texts}
    assert counts == {(0, 0): "5", (1, 0): "1", (1, 1): "4"}
    assert axis.get_title() == "90.00 % of 10 images"
    assert [label.get_text() for label in axis.get_xticklabels()] == ["cat", "dog"]
