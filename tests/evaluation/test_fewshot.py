"""Few-shot evaluation, compared with scikit-learn's ridge regression in float64."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from vit_keras import evaluation

pytestmark = pytest.mark.on("torch")


def clusters(rng, images, width, classes=5, spread=1.5):
    centers = rng.normal(size=(classes, width))
    labels = rng.permutation(np.arange(images) % classes)
    features = centers[labels] + spread * rng.normal(size=(images, width)) + 3.0
    return features.astype("float32"), labels


def ridge(features, labels, test, l2):
    """Standardizes by the training images; the bias feature is 100, and targets are -1 and 1."""
    features, test = features.astype("float64"), test.astype("float64")
    mean, std = features.mean(axis=0), features.std(axis=0) + 1e-5
    with_bias = lambda x: np.hstack([(x - mean) / std, np.full((len(x), 1), 100.0)])
    targets = 2.0 * np.eye(labels.max() + 1)[labels] - 1
    solved = Ridge(alpha=l2, fit_intercept=False, solver="svd").fit(with_bias(features), targets)
    return solved.coef_.T, solved.predict(with_bias(test)).argmax(axis=-1)


@pytest.mark.parametrize("l2", [2.0**10, 0.5])
@pytest.mark.parametrize(("images", "width"), [(60, 7), (20, 33)], ids=["primal", "dual"])
def test_weights_are_those_of_ridge_regression(rng, images, width, l2):
    features, labels = clusters(rng, images, width)
    test, _ = clusters(rng, 50, width)
    solver = evaluation.LeastSquares(features, labels, 5)
    weights, classes = ridge(features, labels, test, l2)
    np.testing.assert_allclose(solver.weights(l2), weights, atol=1e-9)
    np.testing.assert_array_equal(solver.predict(test, l2, chunk=16), classes)


def test_shots_are_drawn_as_published(rng):
    """One generator per seed permutes the images of each class; the first ones are the shots."""
    features, labels = clusters(rng, 90, 8)
    test, test_labels = clusters(rng, 200, 8)
    rows = evaluation.few_shot((features, labels), (test, test_labels), 5, (2, 7), (64.0, 1024.0))
    assert [(row["shots"], row["l2"]) for row in rows] == [(2, 64), (2, 1024), (7, 64), (7, 1024)]
    for row in rows:
        for seed, accuracy in enumerate(row["accuracies"]):
            generator = np.random.default_rng(seed)
            chosen = [generator.permutation(np.where(labels == k)[0]) for k in range(5)]
            chosen = np.concatenate([indices[: row["shots"]] for indices in chosen])
            _, classes = ridge(features[chosen], labels[chosen], test, row["l2"])
            assert accuracy == pytest.approx((classes == test_labels).mean())
        assert row["mean"] == pytest.approx(np.mean(row["accuracies"]))
        assert row["std"] == pytest.approx(np.std(row["accuracies"], ddof=1))
    assert "7-shot accuracy" in evaluation.few_shot_table(rows)
