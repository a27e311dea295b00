"""Labels that look wrong, beside the rule of confident learning and flips that are known."""

import json

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

from tests.helpers import randomize
from vit_keras import commands, models, weights
from vit_keras.evaluation import (
    cross_validated_probabilities,
    find_label_issues,
    suspicion,
)

pytestmark = pytest.mark.once


@pytest.mark.parametrize("seed", range(3))
def test_flipped_labels_rank_first(seed):
    features, true = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(true))[:800]
    features, true = features[chosen], true[chosen]
    flipped = rng.permutation(800)[:40]  # 5 %
    labels = true.copy()
    labels[flipped] = (true[flipped] + rng.integers(1, 10, 40)) % 10
    probabilities = cross_validated_probabilities(features, labels, seed)
    is_flipped = np.isin(np.arange(800), flipped)
    ranks = suspicion(probabilities, labels)
    assert average_precision_score(is_flipped, ranks) >= 0.8
    issues = find_label_issues(probabilities, labels)
    right = [issue.number for issue in issues if issue.suggested == true[issue.number]]
    assert len(set(right) & set(flipped)) >= 20 and len(issues) <= 60


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
        pixels = rng.integers(low, low + 100, (16, 16, 3), dtype="uint8")
        (tmp_path / "photos" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i:02}.png")
    model = randomize(models.VisionTransformer(16, 8, 12, 1, 3, 20, 5), rng)
    weights.save_model(model, tmp_path / "model.keras")
    out = [f"--out={tmp_path / name}" for name in ("report.json", "page.html")]
    command = ["check", str(tmp_path / "photos"), "--model", str(tmp_path / "model.keras")]
    commands.run([*command, *out])
    rows = json.loads((tmp_path / "report.json").read_text())["label_issues"]
    assert {row["picture"].rpartition("/")[2] for row in rows[:2]} == {"05.png", "08.png"}
    assert [(row["label"], row["suggested"]) for row in sorted(rows[:2], key=str)] == [
        ("dark", "light"),
        ("light", "dark"),
    ]
    assert "warning: labels that look wrong" in capsys.readouterr().out
    page = (tmp_path / "page.html").read_text()
    assert page.count("<figure") == len(rows) and "(its label)" in page
    assert page.index("08.png") > 0 < page.index("05.png")
