"""Keras' OpenVINO backend, which predicts, embeds and evaluates without the other backends."""

import json

import numpy as np
import pytest
from pyarrow import parquet

import vit_keras
from tests.helpers import randomize, run_script, write_picture
from vit_keras import commands, models

pytestmark = pytest.mark.once
COMMANDS = (
    "predict small.keras photos --top 3 --out {0}.jsonl",
    "embed small.keras photos --out {0}.parquet",
    "evaluate small.keras --dataset folder:photos --out {0}",
)
REFUSED = {
    "train --dataset folder:photos --model.weights small.keras --workdir run": (
        "KERAS_BACKEND=openvino predicts, embeds and evaluates"
    ),
    "visualize small.keras photos/cat/0.png --out views": "which openvino does not compute",
}
ALONE = """
import sys
sys.modules["tensorflow"] = None  # Keras imports it where it is installed
from vit_keras.commands import main
print([main(line.split()) for line in sys.argv[1:]])
"""


def test_commands_answer_as_on_another_backend(tmp_path, rng, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = models.VisionTransformer(16, 8, 32, 2, 2, 48, num_classes=3)
    randomize(model, rng).class_names = ["cat", "dog", "owl"]
    vit_keras.weights.save(model, "small.keras")
    for number in range(12):
        name = f"photos/{model.class_names[number % 3]}/{number}.png"
        write_picture(tmp_path / name, rng, (20, 24))
    for line in COMMANDS:
        commands.run(line.format("ours").split())
    lines = [line.format("theirs") for line in COMMANDS]
    done = run_script("-c", ALONE, *lines, *REFUSED, backend="openvino", cwd=tmp_path)
    assert done.stdout.endswith("[0, 0, 0, 1, 1]\n"), done.stderr
    assert all(message in done.stderr for message in REFUSED.values())

    answers = [(tmp_path / f"{name}.jsonl").read_text() for name in ("ours", "theirs")]
    rows = [[json.loads(line) for line in text.splitlines()] for text in answers]
    for row, other in zip(*rows, strict=True):
        assert [c["name"] for c in row["classes"]] == [c["name"] for c in other["classes"]]
        shares = [[c["probability"] for c in r["classes"]] for r in (row, other)]
        np.testing.assert_allclose(*shares, atol=1e-5)
    tables = [parquet.read_table(f"{name}.parquet") for name in ("ours", "theirs")]
    features, expected = (np.array(table["embedding"].to_pylist()) for table in tables)
    np.testing.assert_allclose(features, expected, atol=1e-5 * abs(expected).max())
    reports = [json.loads((tmp_path / n / "report.json").read_text()) for n in ("ours", "theirs")]
    assert reports[0]["confusion_matrix"] == reports[1]["confusion_matrix"]
    assert reports[0]["ece"] == pytest.approx(reports[1]["ece"], abs=1e-5)
