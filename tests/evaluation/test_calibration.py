"""Calibration, compared with the formula bin by bin."""

import numpy as np
import pytest

from vit_keras import evaluation

pytestmark = pytest.mark.once


def formula(probabilities, labels, bins):
    """Σ |B_m|/N |acc − conf| over bins ((m−1)/M, m/M], image by image (Guo et al. 2017)."""
    error = 0.0
    for m in range(1, bins + 1):
        of_bin = [
            (row.max(), row.argmax() == label)
            for row, label in zip(probabilities, labels)
            if (m - 1) / bins < row.max() <= m / bins
        ]
        if of_bin:
            confidence, correct = np.mean(of_bin, axis=0)
            error += len(of_bin) / len(labels) * abs(correct - confidence)
    return error


@pytest.mark.parametrize("bins", [15, 4])
def test_error_is_the_formulas(rng, bins):
    probabilities = rng.dirichlet(np.full(6, 0.4), 300)
    labels = rng.integers(0, 6, 300)
    actual = evaluation.measure_calibration(probabilities, labels, bins)
    assert actual["ece"] == pytest.approx(formula(probabilities, labels, bins), abs=1e-12)
    assert sum(row["images"] for row in actual["bins"]) == 300 and len(actual["bins"]) == bins


def test_bins_are_closed_above_and_empty_ones_have_no_rate():
    probabilities = np.array([[0.6, 0.4], [0.75, 0.25], [1.0, 0.0], [0.2, 0.8]])
    actual = evaluation.measure_calibration(probabilities, np.array([0, 1, 0, 0]), bins=4)
    rows = [(row["images"], row["accuracy"], row["confidence"]) for row in actual["bins"]]
    assert rows == [(0, None, None), (0, None, None), (2, 0.5, 0.675), (2, 0.5, 0.9)]
    assert actual["ece"] == pytest.approx(0.5 * 0.175 + 0.5 * 0.4)
