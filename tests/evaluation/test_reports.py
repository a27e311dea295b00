"""Reports, figures and tables of predictions equal scikit-learn's figures and plain counts."""

import csv
import json

import numpy as np
import pyarrow.parquet
import pytest
import sklearn.metrics as reference

from tests.reference import softmax
from vit_keras import evaluation
from vit_keras.support.tasks import CLASSES, Task

pytestmark = pytest.mark.once

NAMES = ("sun", "sea", "sand")


def test_classes_are_judged_as_scikit_learn_does(rng):
    logits, labels = rng.normal(size=(200, 4)), rng.integers(0, 4, 200)
    actual = evaluation.report(logits, labels, "abcd")
    predicted = logits.argmax(axis=1)
    precision, recall, _, support = reference.precision_recall_fscore_support(labels, predicted)
    matrix = reference.confusion_matrix(labels, predicted)
    assert actual["accuracy"] == pytest.approx(reference.accuracy_score(labels, predicted))
    np.testing.assert_array_equal(actual["confusion_matrix"], matrix)
    for i, row in enumerate(actual["classes"]):
        assert row["name"] == "abcd"[i] and row["images"] == support[i]
        assert row["precision"] == pytest.approx(precision[i])
        assert row["recall"] == pytest.approx(recall[i])


def test_classes_without_images_or_predictions_have_no_rate():
    actual = evaluation.report(np.array([[1.0, 0, 0], [1, 0, 0]]), np.array([0, 1]), "abc")
    rates = [(row["precision"], row["recall"]) for row in actual["classes"]]
    assert rates == [(0.5, 1.0), (None, 0.0), (None, None)]
    assert "accuracy 50.00% of 2 images" in evaluation.report_table(actual)


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
    grid = np.geomspace(1, 16, 150)
    assert temperature == pytest.approx(min(grid, key=loss), rel=0.02)
    assert 2.5 < temperature < 6


@pytest.mark.parametrize("bins", [15, 4])
def test_the_calibration_error_is_the_formulas(rng, bins):
    """Σ |B_m|/N |acc − conf| over bins ((m−1)/M, m/M], image by image (Guo et al. 2017)."""
    probabilities = np.concatenate([rng.dirichlet(np.full(6, 0.4), 300), np.eye(6)[:2]])
    probabilities[0] = [0.75, 0.25, 0, 0, 0, 0]  # on the edge of two bins
    labels = rng.integers(0, 6, 302)
    actual, error = evaluation.measure_calibration(probabilities, labels, bins), 0.0
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    for m, row in enumerate(actual["bins"]):
        of_bin = (m / bins < confidence) & (confidence <= (m + 1) / bins)
        assert row["images"] == of_bin.sum()
        rates = (row["accuracy"], row["confidence"])
        if of_bin.any():
            assert rates == pytest.approx((correct[of_bin].mean(), confidence[of_bin].mean()))
            error += of_bin.mean() * abs(rates[0] - rates[1])
        else:
            assert rates == (None, None)
    assert actual["ece"] == pytest.approx(error, abs=1e-12) and len(actual["bins"]) == bins


def test_imagenet_real_leaves_out_images_without_labels(tmp_path):
    file = tmp_path / "real.json"
    file.write_text(json.dumps([[3], [], [0, 2], [1], [4, 0]]))
    labels = evaluation.read_real_labels(file, 5, 5)
    assert labels == [{3}, set(), {0, 2}, {1}, {4, 0}]
    accuracy, images = evaluation.real_accuracy(np.array([3, 3, 2, 0, 0]), labels)
    assert (accuracy, images) == (0.75, 4)
    names = [f"/data/val/n01/ILSVRC2012_val_{n:08d}.JPEG" for n in (5, 3, 2)]
    assert evaluation.read_real_labels(file, 3, 5, names) == [{4, 0}, {0, 2}, set()]
    assert evaluation.read_real_labels(file, 5, 5, [f"{x}.jpg" for x in "abcde"])[0] == {3}
    for images, message in (
        (4, "5 lists for 4 images$"),
        (5, r"5 images, with the labels \[3, 4\]"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluation.read_real_labels(file, images, 5 if images == 4 else 3)


def test_tables_of_predictions_have_one_row_an_image(tmp_path):
    shares = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.25, 0.5, 0.25]], "float32")
    labels, file = np.array([0, 1, 1]), tmp_path / "new" / "a.parquet"
    for paths in (["x.png", "y\udcff.png", "z.png"], None):  # the second replaces the first
        evaluation.write_predictions(file, shares, labels, paths)
        actual = pyarrow.parquet.read_table(file).to_pydict()
        assert actual.pop("path", None) == (paths and ["x.png", "y\\udcff.png", "z.png"])
    assert actual.pop("confidence") == pytest.approx([0.7, 0.6, 0.5])
    expected = {"index": [0, 1, 2], "label": [0, 1, 1], "predicted": [0, 2, 1]}
    assert actual == {**expected, "correct": [True, False, True]}
    assert [p.name for p in file.parent.iterdir()] == ["a.parquet"]


def test_a_spreadsheet_computes_no_name(tmp_path):
    names = ["=1+1", "+1", "-1", "@a", "\t=1", "a=1", "\udcff"]
    shares = np.tile(np.array([0.25, 0.75], "float32"), (7, 1))
    evaluation.write_predictions(tmp_path / "a.csv", shares, np.arange(7) % 2, names)
    with open(tmp_path / "a.csv", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["index", "path", "label", "predicted", "confidence", "correct"]
    assert [row[1] for row in rows] == [*(f"'{name}" for name in names[:5]), "a=1", "\\udcff"]
    assert rows[0][2:] == ["0", "1", "0.75", "false"] and rows[1][5] == "true"
    numbers, name = np.full((1, 1), -1.5, "float32"), "=HYPERLINK(1)"
    options = {"task": Task("numbers"), "names": [name]}
    evaluation.write_predictions(tmp_path / "a.csv", numbers, numbers, **options)
    with open(tmp_path / "a.csv", newline="") as file:
        head, row = csv.reader(file)
    assert head == ["index", f"label_{name}", f"predicted_{name}"] and row == ["0", "-1.5", "-1.5"]
