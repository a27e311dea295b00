"""Reports on labels, numbers and rare classes equal scikit-learn's figures."""

import numpy as np
import pytest
import sklearn.metrics as reference

from tests.reference import softmax
from vit_keras import evaluation
from vit_keras.support.tasks import CLASSES, Task

pytestmark = pytest.mark.once

NAMES = ("sun", "sea", "sand")


def labels_and_logits(rng, count=200):
    """Labels of which a fifth is unknown, and rounded logits, so that some are equal."""
    labels = (rng.random((count, 3)) < [0.5, 0.2, 0.1]).astype("float32")
    logits = np.round(rng.normal(size=labels.shape) + labels, 1).astype("float32")
    labels[rng.random(labels.shape) < 0.2] = np.nan
    return labels, logits


def known_columns(labels, *others):
    for k in range(labels.shape[1]):
        known = ~np.isnan(labels[:, k])
        yield labels[known, k], *(other[known, k] for other in others)


def test_labels_are_judged_as_scikit_learn_does(rng):
    labels, logits = labels_and_logits(rng)
    task = Task("labels", thresholds=(0.6, 0.5, 0.3))
    report = evaluation.report(logits, labels, NAMES, task)
    probabilities = 1 / (1 + np.exp(-logits.astype("float64")))
    chosen = probabilities >= task.thresholds
    for row, (y, p, answer) in zip(report["labels"], known_columns(labels, probabilities, chosen)):
        assert row["images"] == len(y) and row["positives"] == y.sum()
        assert row["average_precision"] == pytest.approx(reference.average_precision_score(y, p))
        for name in ("precision", "recall", "f1"):
            score = getattr(reference, f"{name}_score")(y, answer)
            assert row[name] == pytest.approx(score), (row["name"], name)
    mean = np.mean([row["average_precision"] for row in report["labels"]])
    assert report["average_precision"] == pytest.approx(mean)
    known = ~np.isnan(labels)
    micro = reference.f1_score(labels[known], chosen[known])
    assert report["micro_f1"] == pytest.approx(micro)
    again = evaluation.report(probabilities.astype("float32"), labels, NAMES, task, True)
    assert again["micro_f1"] == report["micro_f1"]


def test_thresholds_have_the_highest_f1(rng):
    labels, logits = labels_and_logits(rng)
    probabilities = evaluation.sigmoid(logits)
    thresholds = evaluation.best_thresholds(probabilities, labels)
    for threshold, (y, p) in zip(thresholds, known_columns(labels, probabilities)):
        precision, recall, _ = reference.precision_recall_curve(y, p)
        best = np.nanmax(2 * precision * recall / np.maximum(precision + recall, 1e-12))
        assert reference.f1_score(y, p >= threshold) == pytest.approx(best)
    nothing = np.zeros((4, 1), "float32")
    assert evaluation.best_thresholds(nothing, nothing) == (0.5,)


def test_a_threshold_separates_neighbors_in_float32():
    below = np.array([0.3, 0.7, 1e-7, 0.0], "float32")
    values = np.stack([below, np.nextafter(below, np.float32(1))])
    labels = np.array([[0.0] * 4, [1.0] * 4])
    task = Task("labels", thresholds=evaluation.best_thresholds(values, labels))
    np.testing.assert_array_equal(task.present(values), labels == 1)
    assert (np.array(task.thresholds) > below).all()  # in float64 as well


def test_numbers_are_judged_as_scikit_learn_does(rng):
    true = rng.normal(30, [5, 0.1], (80, 2)).astype("float32")
    predicted = true + rng.normal(0, [2, 0.05], true.shape).astype("float32")
    true[rng.random(true.shape) < 0.2] = np.nan
    report = evaluation.report(predicted, true, ("age", "dose"), Task("numbers"))
    for row, (y, p) in zip(report["numbers"], known_columns(true, predicted)):
        assert row["r2"] == pytest.approx(reference.r2_score(y, p), abs=1e-5)
        assert row["mae"] == pytest.approx(reference.mean_absolute_error(y, p), rel=1e-5)
        assert row["rmse"] == pytest.approx(reference.root_mean_squared_error(y, p), rel=1e-5)
        assert len(row["points"]) == len(y) == row["images"]
    assert report["r2"] == pytest.approx(np.mean([row["r2"] for row in report["numbers"]]))
    assert evaluation.headline(report).startswith(f"R² {report['r2']:.4f}, mean absolute error")


@pytest.mark.parametrize("task", [CLASSES, Task("labels")], ids=lambda task: task.kind)
def test_the_temperature_has_the_least_loss(rng, task):
    logits = 3 * rng.normal(size=(300, 3))
    if task.kind == "classes":
        labels = (logits / 4 + rng.gumbel(size=logits.shape)).argmax(axis=-1)  # drawn at T = 4
        loss = lambda t: reference.log_loss(labels, softmax(logits / t))
    else:
        labels = (rng.random(logits.shape) < evaluation.sigmoid(logits / 4)).astype("float64")
        labels[rng.random(labels.shape) < 0.1] = np.nan
        known = ~np.isnan(labels)
        loss = lambda t: reference.log_loss(labels[known], evaluation.sigmoid(logits / t)[known])
    temperature = evaluation.fit_temperature(logits, labels, task)
    grid = np.geomspace(1, 16, 400)
    assert temperature == pytest.approx(min(grid, key=loss), rel=0.02)
    assert 2.5 < temperature < 6
