"""Reports, compared with scikit-learn and plain counts."""

import numpy as np
import pytest
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    precision_recall_fscore_support,
)

from tests.helpers import assert_close, randomize
from vit_keras import applications, evaluation

pytestmark = pytest.mark.on("torch")


def test_report_equals_scikit_learns(rng):
    logits, labels = rng.normal(size=(200, 4)), rng.integers(0, 4, 200)
    actual = evaluation.report(logits, labels, "abcd")
    predicted = logits.argmax(axis=1)
    precision, recall, _, support = precision_recall_fscore_support(labels, predicted)
    assert actual["accuracy"] == pytest.approx(accuracy_score(labels, predicted))
    np.testing.assert_array_equal(actual["confusion_matrix"], confusion_matrix(labels, predicted))
    for i, row in enumerate(actual["classes"]):
        assert row["name"] == "abcd"[i] and row["images"] == support[i]
        assert row["precision"] == pytest.approx(precision[i])
        assert row["recall"] == pytest.approx(recall[i])


def test_classes_without_images_or_predictions_have_no_rate():
    actual = evaluation.report(np.array([[1.0, 0, 0], [1, 0, 0]]), np.array([0, 1]), "abc")
    rates = [(row["precision"], row["recall"]) for row in actual["classes"]]
    assert rates == [(0.5, 1.0), (None, 0.0), (None, None)]
    text = evaluation.report_table(actual)
    assert "accuracy 50.00% of 2 images" in text and "0.00%" in text


def test_a_softmax_is_not_applied_twice(rng):
    model = randomize(applications.ViTTi16(input_shape=(16, 16, 3), classes=4), rng, 0.1)
    images = rng.uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
    assert_close(evaluation.probabilities(model, images), model(images), rtol=2e-6)


def test_runs_are_summarized_by_mean_and_deviation():
    reports = [{"accuracy": a, "images": 9, "ece": 0.1, "classes": []} for a in (0.90, 0.94, 0.95)]
    reports[2] |= {"ece": None}
    actual = evaluation.summarize(reports)
    mean, std = np.mean([0.90, 0.94, 0.95]), np.std([0.90, 0.94, 0.95], ddof=1)
    assert actual == {"accuracy": (pytest.approx(mean), pytest.approx(std))}
    assert evaluation.summary_line(actual) == "accuracy 93.00 ± 2.65%"
    assert evaluation.summary_line({"accuracy": 0.5, "images_per_second": 12.345, "images": 3}) == (
        "accuracy 50.00%, images per second 12.35"
    )
    assert evaluation.mean_and_std([0.25]) == (0.25, 0.0)
