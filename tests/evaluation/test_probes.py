"""Probes of features beside scikit-learn's, and labels that features contradict."""

import json

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsClassifier

from tests.helpers import randomize, write_picture
from vit_keras import commands, evaluation, models, weights
from vit_keras.evaluation import find_label_issues, suspicion

pytestmark = pytest.mark.once


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
    return solved.predict(with_bias(test)).argmax(axis=-1)


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
            classes = ridge(features[chosen], labels[chosen], test, row["l2"])
            assert accuracy == pytest.approx((classes == test_labels).mean())
        assert row["mean"] == pytest.approx(np.mean(row["accuracies"]))
        assert row["std"] == pytest.approx(np.std(row["accuracies"], ddof=1))
    assert "7-shot accuracy" in evaluation.few_shot_table(rows)


@pytest.mark.parametrize("temperature", [0.07, 0.5, 0.001])
def test_nearest_neighbors_are_scikit_learns(rng, temperature):
    features, labels = clusters(rng, 211, 6, classes=4)
    features = (features - 2.5) * rng.uniform(0.1, 10, (211, 1)).astype("float32")
    train, test = (features[:150], labels[:150]), (features[150:], [*labels[150:]])
    rows = evaluation.knn(train, test, 4, (1, 5, 20, 150), temperature=temperature)
    assert [row["neighbors"] for row in rows] == [1, 5, 20, 150]
    for row in rows:
        votes = lambda x: np.exp((x[:, :1] - x) / temperature)  # x is 1 - s, the least first
        for name, kind in (("weighted", votes), ("majority", "uniform")):
            options = {"weights": kind, "metric": "cosine", "algorithm": "brute"}
            reference = KNeighborsClassifier(row["neighbors"], **options).fit(*train)
            assert row[name] == reference.score(*test)
    assert rows[0]["weighted"] == rows[0]["majority"]
    assert len({row["weighted"] for row in rows} | {row["majority"] for row in rows}) > 2
    text = f"5-nearest-neighbor accuracy {100 * rows[1]['weighted']:.2f}% ("
    assert text in evaluation.knn_table(rows)


def test_issues_follow_the_published_rule(rng):
    """Section 3.1 of arXiv 1911.00068, picture by picture."""
    probabilities = rng.dirichlet([0.5] * 4, 60)
    labels = rng.integers(0, 4, 60)
    expected = {}
    for i, p in enumerate(probabilities):
        least = [probabilities[labels == k][:, k].mean() for k in range(4)]
        above = {k: p[k] for k in range(4) if p[k] >= least[k]}
        if above and (k := max(above, key=above.get)) != labels[i]:
            expected[i] = k
    issues = find_label_issues(probabilities, labels)
    assert {issue.number: issue.suggested for issue in issues} == expected and expected
    rows = [suspicion(probabilities, labels)[issue.number] for issue in issues]
    assert rows == sorted(rows, reverse=True)
    one = issues[0]
    p = probabilities[one.number]
    assert one.probabilities == (p[one.suggested], p[one.label])
    assert rows[0] == pytest.approx(np.delete(p, one.label).max() - p[one.label])


def test_check_lists_and_shows_them(rng, tmp_path, capsys):
    for i in range(40):
        kind, low = ("dark", 0) if i % 2 else ("light", 150)
        name = {5: "light", 8: "dark"}.get(i, kind)  # of the other class
        path = tmp_path / "photos" / name / f"{i:02}.png"
        write_picture(path, rng, low=low, high=low + 100)
    model = randomize(models.VisionTransformer(16, 8, 12, 1, 3, 20, 5), rng)
    weights.save_model(model, tmp_path / "model.keras")
    out = [f"--out={tmp_path / name}" for name in ("report.json", "page.html")]
    command = ["check", str(tmp_path / "photos"), "--model", str(tmp_path / "model.keras")]
    commands.run([*command, *out])
    rows = json.loads((tmp_path / "report.json").read_text())["label_issues"]
    assert {row["picture"].rpartition("/")[2] for row in rows[:2]} == {"05.png", "08.png"}
    pairs = {(row["label"], row["suggested"]) for row in rows[:2]}
    assert pairs == {("dark", "light"), ("light", "dark")}
    assert "warning: labels that look wrong" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text()
    assert page.count("<figure") == len(rows) and "(its label)" in page
    for name, wrong, right in (("05.png", "light", "dark"), ("08.png", "dark", "light")):
        (tmp_path / "photos" / wrong / name).rename(tmp_path / "photos" / right / name)
    commands.run([*command, *out])
    rows = json.loads((tmp_path / "report.json").read_text())["label_issues"]
    assert (tmp_path / "page.html").read_text().count("<figure") == len(rows) == 0
