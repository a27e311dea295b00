"""`info`, `bench` and `convert` on a small model, beside what the library gives."""

import json

import pytest

import vit_keras
from tests.helpers import GOLDEN
from vit_keras.commands import run

pytestmark = pytest.mark.on("torch")


def test_info_describes_checkpoints_and_variants(model_file, capsys):
    run(["info", model_file, "--json"])
    description = json.loads(capsys.readouterr().out)
    model = vit_keras.open(model_file)
    assert description["kind"] == "checkpoint" and description["class_names"] == model.class_names
    assert description["parameters"] == model.count_params()
    assert description["architecture"]["hidden_size"] == 24
    assert description["image_size"] == [16, 16] and len(description["files"][0]["sha256"]) == 64

    run(["info", "L/16", "--json"])
    description = json.loads(capsys.readouterr().out)
    assert description["parameters"] == 304_326_632
    run(["info", "B/16", "--layers"])
    text = capsys.readouterr().out
    assert "parameters: 86,567,656" in text and "encoderblock_11" in text


def test_what_a_file_does_not_say_is_an_option(tmp_path):
    path = str(GOLDEN / "timm_avg_nonsquare.safetensors")
    out = str(tmp_path / "a.safetensors")
    run(["convert", path, out, "--to", "timm", "--num_heads", "4", "--image-size", "[16, 40]"])
    with open(path, "rb") as before, open(out, "rb") as after:
        assert before.read()[-1000:] == after.read()[-1000:]
