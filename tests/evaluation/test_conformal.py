"""Possible answers, intervals and abstentions, beside their definitions and on random splits."""

import csv
import dataclasses
import io
import json

import numpy as np
import pytest

from tests.helpers import write_picture
from vit_keras import evaluation
from vit_keras.models import Preprocessing
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.once


def draws(rng, kind, count):
    """Outputs of an imperfect model of three classes, labels or numbers, and the truth."""
    logits = 3 * rng.normal(size=(count, 3))
    if kind == "classes":
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        labels = (shares.cumsum(axis=1) < rng.uniform(size=(count, 1))).sum(axis=1)
        return shares**1.5 / (shares**1.5).sum(axis=1, keepdims=True), np.minimum(labels, 2)
    if kind == "labels":
        shares = 1 / (1 + np.exp(-logits))
        labels = (rng.uniform(size=shares.shape) < shares).astype("float64")
    else:
        shares, labels = logits, logits + rng.standard_t(3, size=logits.shape)
    labels[rng.uniform(size=labels.shape) < 0.1] = np.nan
    return shares, labels


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers"])
def test_the_truth_is_held_at_the_chosen_rate(rng, kind):
    """Over 200 splits; the r-th smallest of n scores holds r / (n + 1) of others on average."""
    shares = {0.9: [], 0.95: []}
    for _ in range(200):
        (outputs, labels), (new, truth) = (draws(rng, kind, count) for count in (150, 400))
        task = Task(kind)
        task = dataclasses.replace(task, quantiles=evaluation.fit_quantiles(outputs, labels, task))
        for row in evaluation.measure_coverage(new, truth, task):
            if row["coverage"] in shares:
                shares[row["coverage"]].append(row["covered"])
    for coverage, values in shares.items():
        mean, error = np.mean(values), np.std(values) / np.sqrt(len(values))
        assert len(values) == 200
        assert coverage - 4 * error < mean < coverage + 2 / 60 + 4 * error  # labels: ~ 60 of 150


def test_possible_classes_are_those_that_are_not_much_less_probable(rng):
    outputs, labels = draws(rng, "classes", 99)
    quantiles = dict(evaluation.fit_quantiles(outputs, labels, Task()))
    best_other = np.array([[np.delete(row, k).max() for k in range(3)] for row in outputs])
    ratios = best_other / outputs
    of_truth = np.sort(ratios[np.arange(99), labels])
    for coverage, rank in ((0.8, 80), (0.9, 90), (0.95, 95), (0.99, 99)):
        assert quantiles[coverage] == pytest.approx(np.log(of_truth[rank - 1]))
        task = Task(quantiles=((coverage, np.log(1.3)), (0.1, -np.log(1.3))))
        found = evaluation.possible_answers(outputs, task, coverage)
        np.testing.assert_array_equal(found, ratios <= 1.3)
    found = evaluation.possible_answers(outputs, task, 0.1)  # negative: it may leave no class
    np.testing.assert_array_equal(found, ratios <= 1 / 1.3)


def written(tmp_path, task, form, **options):
    """The probabilities or numbers of six pictures, and what a file of one form says of them."""
    rng, paths = np.random.default_rng(3), [tmp_path / f"{i}.png" for i in range(6)]
    pixels = np.stack([write_picture(path, rng, (8, 8)) for path in paths])
    run = lambda images: images.mean(axis=(1, 2)) / 9
    plain, is_number = Preprocessing(mean=(0.0,), std=(1 / 255,)), task.kind == "numbers"
    predictor = evaluation.Predictor(run, (8, 8, 3), 3, plain, is_number, tuple("abc"), task=task)
    rows = evaluation.predict_files(predictor, paths, top=3, coverage=0.9, **options)
    told = {"top": 3, "coverage": 0.9, "kind": task.kind, "names": "abc"}
    evaluation.write_file_predictions(rows, file := io.BytesIO(), form, **told)
    return predictor.as_probabilities(run(pixels)), file.getvalue().decode()


def test_every_file_tells_the_possible_classes(tmp_path):
    task, floor = Task(quantiles=((0.9, 0.3), (0.95, 2.0)), floors=((0.05, 0.5),)), 0.5
    outputs, text = written(tmp_path, task, "jsonl", abstain=0.05)
    rows = [json.loads(line) for line in text.splitlines()]
    fits = evaluation.possible_answers(outputs, task, 0.9)
    for row, possible, values in zip(rows, fits, outputs, strict=True):
        assert set(row["possible"]) == {name for name, fit in zip("abc", possible) if fit}
        assert bool(row["classes"]) == (values.max() >= floor)
    assert len({len(row["possible"]) for row in rows}) > 1
    cells = [*csv.DictReader(io.StringIO(written(tmp_path, task, "csv")[1]))]
    assert [cell["possible"].split("; ") for cell in cells] == [r["possible"] or [""] for r in rows]
    _, page = written(tmp_path, task, "html", abstain=0.05)
    assert page.count("possible: ") == 6
    assert page.count("none of these") == sum(not row["classes"] for row in rows) > 0


def test_files_tell_the_intervals_of_numbers(tmp_path):
    task = Task("numbers", quantiles=((0.9, 0.5, None, 2.0),))
    numbers, text = written(tmp_path, task, "jsonl")
    for (a, _, c), row in zip(numbers, map(json.loads, text.splitlines()), strict=True):
        assert row["numbers"]["a"] == pytest.approx(a, rel=1e-5)
        assert row["intervals"]["a"] == pytest.approx([a - 0.5, a + 0.5], rel=1e-5)
        assert row["intervals"]["b"] == [None, None]
        assert row["intervals"]["c"] == pytest.approx([c - 2, c + 2], rel=1e-5)
    cells = [*csv.DictReader(io.StringIO(written(tmp_path, task, "csv")[1]))]
    sides = [float(cell["a_high"]) - float(cell["a"]) for cell in cells]
    assert sides == pytest.approx([0.5] * 6, rel=1e-4) and cells[0]["b_low"] == "-inf"
