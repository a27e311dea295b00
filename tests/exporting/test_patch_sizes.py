"""One checkpoint at several patch sizes: what is written, with its costs and agreement."""

import json

import pytest

from tests.helpers import assert_close, randomize, to_numpy
from vit_keras import inspection, runtimes
from vit_keras.commands import run
from vit_keras.exporting import export_patch_sizes
from vit_keras.models import VisionTransformer, with_patch_size
from vit_keras.support.preprocessing import Resizing

pytestmark = pytest.mark.once


@pytest.fixture
def flexivit(rng):
    model = VisionTransformer(24, 4, 16, 2, 2, 24, num_classes=3, position_cover="patches")
    model.resizing = Resizing("bilinear_antialias", "bilinear_half_pixel")
    return randomize(model, rng)


def test_every_size_is_exported_and_compared_with_the_first(flexivit, rng, tmp_path):
    images = rng.integers(0, 256, (16, 24, 24, 3), dtype="uint8")
    labels = rng.integers(0, 3, 16)
    options = {"formats": ["onnx"], "precisions": ["fp32"], "threads": (), "output": "logits"}
    rows = export_patch_sizes(
        flexivit, tmp_path / "out", [4, 8], images=images, labels=labels, **options
    )
    answers = []
    for row, size in zip(rows, (4, 8), strict=True):
        model = with_patch_size(flexivit, size)
        logits = to_numpy(model(model.preprocessing.normalize(images.astype("float32"))))
        served = runtimes.open(tmp_path / f"out/patch_{size}/model.onnx")(images)
        assert_close(served, logits, rtol=2e-5)
        answers.append(logits.argmax(axis=-1))
        assert row["macs"] == inspection.flops(model).macs and row["patch_size"] == size
        assert row["agreement"] == (answers[-1] == answers[0]).mean()
        assert row["accuracy"] == (answers[-1] == labels).mean()
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["patch_sizes"] == rows
    last = (tmp_path / "out/costs.md").read_text().splitlines()[-1].split(" | ")
    assert last[0] == "| 8" and last[1:3] == ["3x3", f"{rows[1]['macs'] / 1e9:.3f}"]
    assert last[3] == f"{rows[1]['agreement']:.2%}"


@pytest.mark.nightly
def test_the_command_prints_the_table(flexivit, tmp_path, capsys):
    flexivit.save(tmp_path / "flexivit.keras")
    options = ["--format", "onnx", "--precision", "fp32", "--out", str(tmp_path / "out")]
    run(["export", str(tmp_path / "flexivit.keras"), "--patch_sizes", "6", "12", *options])
    printed = capsys.readouterr().out
    assert (tmp_path / "out/costs.md").read_text() in printed
    assert "| 12 | 2x2 |" in printed
