"""Nearest neighbors, compared with scikit-learn's classifier on the same weights."""

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from vit_keras import evaluation
from vit_keras.evaluation import probes

pytestmark = pytest.mark.once

CLASSES = 4


@pytest.fixture
def features(rng):
    """Overlapping clusters of features, of different lengths and with an offset."""
    centers = rng.normal(size=(CLASSES, 6))

    def draw(count):
        labels = rng.integers(0, CLASSES, count)
        values = 0.5 + centers[labels] + 1.5 * rng.normal(size=(count, 6))
        return (values * rng.uniform(0.1, 10, (count, 1))).astype("float32"), labels

    return draw(150), draw(61)


def reference(train, test, k, weights):
    """The share of right classes; cosine distances are 1 - s."""
    classifier = KNeighborsClassifier(k, weights=weights, metric="cosine", algorithm="brute")
    return classifier.fit(*train).score(*test)


@pytest.mark.parametrize("temperature", [0.07, 0.5])
@pytest.mark.parametrize("voters", [4096, 10, 1])  # all rows, 10 or one at a time
def test_accuracies_are_scikit_learns(features, temperature, voters, monkeypatch):
    train, test = features
    monkeypatch.setattr(probes, "VOTERS", voters)
    rows = evaluation.knn(train, test, CLASSES, (1, 5, 20, 150), temperature=temperature)
    assert [row["neighbors"] for row in rows] == [1, 5, 20, 150]
    for row in rows:
        votes = lambda distances: np.exp((1 - distances) / temperature)
        assert row["weighted"] == reference(train, test, row["neighbors"], votes)
        assert row["majority"] == reference(train, test, row["neighbors"], "uniform")
    assert rows[0]["weighted"] == rows[0]["majority"]
    assert len({row["weighted"] for row in rows} | {row["majority"] for row in rows}) > 2
    text = f"5-nearest-neighbor accuracy {100 * rows[1]['weighted']:.2f}% ("
    assert text in evaluation.knn_table(rows)
