"""Possible answers, intervals and abstentions, beside their definitions and on random splits."""

import csv
import dataclasses
import io
import json

import numpy as np
import pytest
from PIL import Image

from tests.helpers import randomize
from vit_keras import commands, evaluation, models, weights
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
        np.testing.assert_array_equal(
            evaluation.possible_answers(outputs, task, coverage), ratios <= 1.3
        )
    np.testing.assert_array_equal(  # a negative quantile may leave no class
        evaluation.possible_answers(outputs, task, 0.1), ratios <= 1 / 1.3
    )


def predicted(folder, model, form, *options):
    out = folder / f"out.{form}"
    pictures = [str(folder / f"{i}.png") for i in range(6)]
    commands.run(["predict", str(folder / model), *pictures, "--out", str(out), *options])
    return out.read_text()


def write_model(folder, task):
    rng = np.random.default_rng(3)
    for i in range(6):
        pixels = rng.integers(0, 256, (8, 8, 3), dtype="uint8")
        Image.fromarray(pixels).save(folder / f"{i}.png")
    model = randomize(models.VisionTransformer(8, 4, 12, 1, 3, 20, 3), rng)
    model.class_names, model.task = ("a", "b", "c"), task
    weights.save_model(model, folder / "model.keras")


def test_every_file_tells_the_possible_classes(tmp_path):
    write_model(tmp_path, Task(quantiles=((0.9, 0.3), (0.95, 2.0)), floors=((0.05, 0.5),)))
    export = ["export", str(tmp_path / "model.keras"), "--format", "onnx", "--precision", "fp32"]
    commands.run([*export, "--out", str(tmp_path / "files")])
    options = ("--coverage", "0.9", "--abstain", "0.05")
    for model in ("model.keras", "files/model.onnx"):
        predictor, _ = evaluation.open_predictor(tmp_path / model)
        assert predictor.task.quantiles == ((0.9, 0.3), (0.95, 2.0))
        text = predicted(tmp_path, model, "jsonl", *options)
        rows = [json.loads(line) for line in text.splitlines()]
        shares = {name: [] for name in "abc"}
        for row in evaluation.predict_files(predictor, [row["path"] for row in rows], top=3):
            for name, share in row.classes:
                shares[name].append(share)
        outputs = np.stack([shares[name] for name in "abc"], axis=1)
        fits = evaluation.possible_answers(outputs, predictor.task, 0.9)
        for row, possible, values in zip(rows, fits, outputs, strict=True):
            assert set(row["possible"]) == {name for name, fit in zip("abc", possible) if fit}
            assert bool(row["classes"]) == (values.max() >= 0.5)
        assert len({len(row["possible"]) for row in rows}) > 1
    cells = [*csv.DictReader(io.StringIO(predicted(tmp_path, model, "csv", *options[:2])))]
    assert [cell["possible"].split("; ") for cell in cells] == [r["possible"] or [""] for r in rows]
    page = predicted(tmp_path, model, "html", *options)
    assert page.count("possible: ") == 6
    assert page.count("none of these") == sum(not row["classes"] for row in rows) > 0


def test_files_tell_the_intervals_of_numbers(tmp_path):
    write_model(tmp_path, Task("numbers", quantiles=((0.9, 0.5, None, 2.0),)))
    lines = predicted(tmp_path, "model.keras", "jsonl", "--coverage", "0.9").splitlines()
    for row in map(json.loads, lines):
        a, c = row["numbers"]["a"], row["numbers"]["c"]
        assert row["intervals"]["a"] == pytest.approx([a - 0.5, a + 0.5], rel=1e-5)
        assert row["intervals"]["b"] == [None, None]
        assert row["intervals"]["c"] == pytest.approx([c - 2, c + 2], rel=1e-5)
    text = predicted(tmp_path, "model.keras", "csv", "--coverage", "0.9")
    cells = [*csv.DictReader(io.StringIO(text))]
    sides = [float(cell["a_high"]) - float(cell["a"]) for cell in cells]
    assert sides == pytest.approx([0.5] * 6, rel=1e-4) and cells[0]["b_low"] == "-inf"
