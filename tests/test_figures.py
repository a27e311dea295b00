"""Figures of training and evaluation show what they are given."""

import pytest

from vit_keras.support import figures


@pytest.mark.once
def test_a_confusion_matrix_counts_true_classes_down_and_predictions_across(monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: drawn.append(figure))
    figures.confusion([[5, 1], [0, 4]], ["cat", "dog"], "nowhere")
    axis = drawn[0].axes[0]
    counts = {text.get_position(): text.get_text() for text in axis.texts}
    assert counts == {(0, 0): "5", (1, 0): "1", (1, 1): "4"}
    assert axis.get_title() == "90.00 % of 10 images"
    assert [label.get_text() for label in axis.get_xticklabels()] == ["cat", "dog"]
